//! Checks of single values that many kinds have.

pub(super) mod cel;
pub(super) mod format;
pub(super) mod lua;
pub(super) mod names;
pub(super) mod regex;
pub(super) mod selectors;
pub(super) mod values;
