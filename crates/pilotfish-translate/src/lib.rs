//! World and view to xDS resources.
