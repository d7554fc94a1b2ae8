"""Finding, checking, fetching, importing and keeping the files of data sets."""
