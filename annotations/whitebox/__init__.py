"""White box: annotations derived from code instead of written by hand (Blazes section VII).

Front ends (`sql`, `bloom`, and others) read a component's implementation into one typed relational
representation, `ir`; one pass, `derive.annotate`, says from it what each input does to the output.
Nothing is imported here: a front end costs something only where it is used.
"""
