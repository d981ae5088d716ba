"""Human studies of explanations: planned, built, served, simulated and analysed (``protometry studies``)."""
