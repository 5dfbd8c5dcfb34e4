"""One pytest invocation: planning at collection, measuring, judging, telling; a role each for a local run, an xdist
controller and an xdist worker."""
