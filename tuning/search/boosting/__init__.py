"""Boosted trees: trained by XGBoost, evaluated and stored without it."""
