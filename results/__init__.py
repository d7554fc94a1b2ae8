"""What the project itself computed: small result files, and the page that holds the paper's claims against them."""
