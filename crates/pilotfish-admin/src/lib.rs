//! Health, metrics, debug and admin API.
