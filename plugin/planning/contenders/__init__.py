"""Plans that run as whole networks beside the best one, because the tables cannot tell which is the fastest."""
