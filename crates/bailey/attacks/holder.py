# Does nothing but wait, as a well-behaved program with one child does.
child(lambda: None)
hold()
