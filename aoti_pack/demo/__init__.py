"""`aoti-pack demo`: the whole way on real ratings, from nothing to a comparison of two served models."""
