//! JSON views of the admin API.
