"""``spindown simulate``: what traffic would cost, beside what people run instead."""
