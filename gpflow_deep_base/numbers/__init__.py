"""Arrays and what holds them.

arithmetic    coding of decisions, within the compiled loops of the codecs
bins          what falls between edges
columns       frames whose columns are no numbers, for estimators
groups        dataclasses whose fields stand in groups
scores        log loss and calibration error of classifiers
"""
