"""Converting quantised models to float models whose values have known ranges."""
