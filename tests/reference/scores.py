"""Membership scores as their papers write them, one target and one reference at a time."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean, linear_regression

from scipy import stats

TINY = 1e-12


def finite(values):
    return [v for v in values if math.isfinite(v)]


def settled(score, margin):
    if math.isfinite(margin):
        return score
    return math.inf if margin == math.inf else -math.inf


def final_margin(margins):
    return [-math.inf if math.isnan(m) else m for m in margins[-1]]


def mean_margin(margins):
    later = margins[len(margins) // 2 :]
    scores = []
    for target in range(len(margins[0])):
        said = finite([row[target] for row in later])
        scores.append(fmean(said) if said else -math.inf)
    return scores


def trajectory(margins):
    targets = len(margins[0])
    total = [0.0] * targets
    for t, row in enumerate(margins, start=1):
        row = [-math.inf if math.isnan(m) else m for m in row]
        for i in range(targets):
            below = sum(other < row[i] for other in row)
            level = sum(other == row[i] for other in row)
            rank = below + (level + 1) / 2
            total[i] += t * NormalDist().inv_cdf((rank - 0.5) / targets)
    return [value / sum(range(1, len(margins) + 1)) for value in total]


def split(references, included):
    """Per target, the finite margins of the references that trained on it, and of those that did not."""
    targets = len(references[0])
    inside, outside = [], []
    for i in range(targets):
        inside.append(finite([r[i] for r, inc in zip(references, included, strict=True) if inc[i]]))
        outside.append(finite([r[i] for r, inc in zip(references, included, strict=True) if not inc[i]]))
    return inside, outside


def sum_of_squares(values):
    return sum((v - fmean(values)) ** 2 for v in values)


def pooled_variance(groups):
    freedom = sum(len(g) - 1 for g in groups if g)
    if freedom:
        return sum(sum_of_squares(g) for g in groups if g) / freedom
    means = [fmean(g) for g in groups if g]
    return sum_of_squares(means) / len(means) if means else 0.0


def variance(group, groups, enough):
    own = sum_of_squares(group) / (len(group) - 1) if len(group) >= max(enough, 2) else pooled_variance(groups)
    return max(own, TINY**2)


def gaussian_of(group, groups, prior, enough):
    """Mean and variance of one more margin: the group's own if it is large enough, else with what others suggest."""
    if len(group) >= max(enough, 2):
        return fmean(group), variance(group, groups, enough)
    mean, worth = prior
    for value in group:
        mean = (worth * mean + value) / (worth + 1)
        worth += 1
    return mean, variance(group, groups, enough) * (1 + 1 / worth)


def spreads(groups):
    return any(len(g) > 1 for g in groups)


def lira_offline(margins, references, included, enough):
    """The probability 1 - Pr[Z > margin] of the paper, Z the Gaussian fitted to the target's out references."""
    _, outside = split(references, included)
    prior = prior_from(outside) if spreads(outside) else None
    everything = [v for group in outside for v in group]
    scores = []
    for i, margin in enumerate(margins[-1]):
        if prior is not None:
            mean, var = gaussian_of(outside[i], outside, (prior[0][i], prior[1]), enough)
        elif outside[i]:
            mean, var = fmean(outside[i]), variance(outside[i], outside, enough)
        else:
            mean = fmean(everything)
            var = max(sum_of_squares(everything) / len(everything), pooled_variance(outside))
        z = (margin - mean) / max(math.sqrt(var), TINY) if math.isfinite(margin) else 0.0
        scores.append(settled(z, margin))
    return scores


def shift_of(inside, outside):
    both = [fmean(a) - fmean(b) for a, b in zip(inside, outside, strict=True) if a and b]
    if both:
        return fmean(both)
    return fmean([fmean(a) for a in inside if a]) - fmean([fmean(b) for b in outside if b])


def log_density(x, mean, std):
    return -0.5 * ((x - mean) / std) ** 2 - math.log(std * math.sqrt(2 * math.pi))


def lira_online(margins, references, included, enough):
    inside, outside = split(references, included)
    shift = shift_of(inside, outside)
    average_in = fmean([fmean(a) for a in inside if a])
    average_out = fmean([fmean(b) for b in outside if b])
    prior_in = prior_from(inside, outside) if spreads(inside) else None
    prior_out = prior_from(outside, inside) if spreads(outside) else None
    scores = []
    for i, margin in enumerate(margins[-1]):
        a, b = inside[i], outside[i]
        mean_in = fmean(a) if a else fmean(b) + shift if b else average_in
        mean_out = fmean(b) if b else fmean(a) - shift if a else average_out
        std_in, std_out = math.sqrt(variance(a, inside, enough)), math.sqrt(variance(b, outside, enough))
        if prior_in is not None:
            mean_in, var = gaussian_of(a, inside, (prior_in[0][i], prior_in[1]), enough)
            std_in = math.sqrt(var)
        if prior_out is not None:
            mean_out, var = gaussian_of(b, outside, (prior_out[0][i], prior_out[1]), enough)
            std_out = math.sqrt(var)
        if math.isfinite(margin):
            ratio = log_density(margin, mean_in, std_in) - log_density(margin, mean_out, std_out)
        else:
            ratio = 0.0
        scores.append(settled(ratio, margin))
    return scores


def student(group, groups, prior_mean, kappa, nu):
    """Update the normal-inverse-gamma prior with one margin after the other; return the predictive distribution."""
    mean, weight, freedom = prior_mean, kappa, nu
    squares = nu * max(pooled_variance(groups), TINY**2)
    for value in group:
        squares += weight * (value - mean) ** 2 / (weight + 1)
        mean = (weight * mean + value) / (weight + 1)
        weight += 1
        freedom += 1
    return stats.t(freedom, mean, max(math.sqrt(squares / freedom * (1 + 1 / weight)), TINY))


def prior_from(kind, other=None, enough=20, least=0.01, most=100.0):
    """Means that other targets suggest for one kind of reference, from the other kind's, and what they count for."""
    said = [fmean(a) for a in kind if a]
    average = fmean(said) if said else 0.0
    if other is None:
        pairs = [(0.0, fmean(a), len(a)) for a in kind if a]
        at, slope, parameters = average, 0.0, 1
        means = [average for _ in kind]
    else:
        pairs = [(fmean(b), fmean(a), len(a)) for a, b in zip(kind, other, strict=True) if a and b]
        if len(pairs) < enough:
            return None
        x, y = [p[0] for p in pairs], [p[1] for p in pairs]
        slope = 0.0 if max(x) - min(x) <= 1e-12 else linear_regression(x, y).slope
        at, parameters = fmean(y) - slope * fmean(x), 2
        means = [at + slope * fmean(b) if b else average for b in other]
    if len(pairs) < enough:
        return None
    total = sum((b - at - slope * a) ** 2 for a, b, _ in pairs) / (len(pairs) - parameters)
    within = pooled_variance(kind)
    between = max(total - within * fmean([1 / p[2] for p in pairs]), 0.05 * total)
    return means, max(within / between, least) if between > within / most else most


def bavaria(margins, references, included, kappa=None, nu=4.0):
    inside, outside = split(references, included)
    centre = fmean([fmean(b) for b in outside if b])
    online = any(inside)
    learnt_out, learnt_in = (None, None) if kappa else (prior_from(outside, inside), prior_from(inside, outside))
    scores = []
    for i, margin in enumerate(margins[-1]):
        at = margin if math.isfinite(margin) else 0.0
        mean, weight = (learnt_out[0][i], learnt_out[1]) if learnt_out else (centre, kappa or 0.1)
        out = student(outside[i], outside, mean, weight, nu)
        if not online:
            scores.append(settled(-out.logsf(at), margin))
            continue
        shift = shift_of(inside, outside)
        own = fmean(outside[i]) if outside[i] else fmean(inside[i]) - shift if inside[i] else centre
        mean, weight = (learnt_in[0][i], learnt_in[1]) if learnt_in else (own + shift, kappa or 0.1)
        scores.append(settled(student(inside[i], inside, mean, weight, nu).logpdf(at) - out.logpdf(at), margin))
    return scores


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def confidence_ratio(margin, inside, outside, a):
    p_in, p_out = [sigmoid(v) for v in inside], [sigmoid(v) for v in outside]
    if p_in:
        prior = (fmean(p_in) + fmean(p_out)) / 2 if p_out else fmean(p_in)
    else:
        prior = ((1 + a) * fmean(p_out) + (1 - a)) / 2
    return sigmoid(margin) / prior


def rmia(margins, references, included, gamma, a):
    inside, outside = split(references, included)
    last = margins[-1]
    ratios = [confidence_ratio(m, *pair, a) for m, *pair in zip(last, inside, outside, strict=True)]
    scores = []
    for i in range(len(last)):
        wins = [ratios[i] >= gamma * ratios[j] for j in range(len(last)) if j != i]
        scores.append(sum(wins) / len(wins) if wins else 0.0)
    return scores


def best_client(scores, client):
    """Scores [clients][targets] of the client in question, or of the best one."""
    if client is None:
        return [max(row[i] for row in scores) for i in range(len(scores[0]))]
    return [scores[client[i]][i] for i in range(len(scores[0]))]


def update_cosine(cosines, client):
    clients, targets = len(cosines[0]), len(cosines[0][0])
    scores = [[-math.inf] * targets for _ in range(clients)]
    for k in range(clients):
        for i in range(targets):
            said = finite([row[k][i] for row in cosines])
            if said:
                scores[k][i] = fmean(said)
    return best_client(scores, client)


def fedmia(cosines, client):
    clients, targets = len(cosines[0]), len(cosines[0][0])
    scores = [[0.5] * targets for _ in range(clients)]
    for k in range(clients):
        for i in range(targets):
            tails = []
            for row in cosines:
                null = finite([row[other][i] for other in range(clients) if other != k])
                if math.isfinite(row[k][i]) and len(null) >= 2:
                    spread = max(math.sqrt(sum_of_squares(null) / len(null)), 1e-4)
                    tails.append(NormalDist(fmean(null), spread).cdf(row[k][i]))
            if tails:
                scores[k][i] = fmean(tails)
    return best_client(scores, client)


def update_regression(found, expected, chance, client):
    """The mixture's likelihood over the null's, each a Student's t around the other clients of the round."""
    clients, targets = len(found[0]), len(found[0][0])
    scores = [[0.0] * targets for _ in range(clients)]
    for row, wanted in zip(found, expected, strict=True):
        for k in range(clients):
            for i in range(targets):
                null = [row[o][i] for o in range(clients) if o != k and math.isfinite(row[o][i])]
                if not math.isfinite(row[k][i]) or len(null) < 2 or wanted[k][i] == 0:
                    continue
                spread = math.sqrt(sum_of_squares(null) / (len(null) - 1) * (1 + 1 / len(null)))
                null_law = stats.t(len(null) - 1, fmean(null), max(spread, 1e-3 * abs(wanted[k][i])))
                out = null_law.logpdf(row[k][i])
                inside = null_law.logpdf(row[k][i] - wanted[k][i])
                scores[k][i] += math.log((1 - chance[k]) + chance[k] * math.exp(inside - out))
    return best_client(scores, client)
