"""Write down what a tick has decided, and its metrics."""
