"""The ground floor: what all five papers and their runs need and that is no mathematics. NumPy only.

    files      files that are whole or absent, JSON
    storage    a model in one file, small binary files, what reading may take, one process in a folder
    numbers    arrays, columns, scores, and dataclasses in groups
    runtime    TensorFlow's start without its noise, its compiled functions, threads
    seeds      integer seeds and named streams of random numbers
    stopping   the best evaluation so far, when to stop looking for a better one, and signals that ask for an end
    cost       what long work will take, said before it begins
    doors      names of a package that are imported at their first use
    text       aligned tables, times and means with their errors
    page       a report as one HTML file, with plots as SVG and without the network

Nothing here imports TensorFlow when it is imported.
"""

from gpflow_deep_base.runtime.quiet import quieten_tensorflow

quieten_tensorflow()
