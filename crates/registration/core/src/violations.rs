//! Violations of a request, by field.

use std::fmt;

/// An invalid field. The path has the API's names: `ports[1].number`, `labels["a key"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field.
    pub field: String,
    /// The mistake and the allowed values.
    pub message: String,
}

/// All invalid fields, at most [`Violations::MAX`] of them. Never empty as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    listed: Vec<FieldViolation>,
    more: usize,
}

impl Violations {
    /// Maximum number of listed fields; more are only counted.
    pub const MAX: usize = 16;

    #[must_use]
    pub fn one(field: impl Into<String>, message: impl Into<String>) -> Self {
        let mut violations = Self::default();
        violations.add(field, message);
        violations
    }

    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        match self.listed.len() < Self::MAX {
            true => self.listed.push(FieldViolation { field: field.into(), message: message.into() }),
            false => self.more += 1,
        }
    }

    /// Adds the violations of a part, with `prefix` before its fields.
    pub fn nest(&mut self, prefix: &str, part: Self) {
        for FieldViolation { field, message } in part.listed {
            self.add(format!("{prefix}.{field}"), message);
        }
        self.more += part.more;
    }

    /// Adds the violations of a part at the same level.
    pub fn extend(&mut self, part: Self) {
        for FieldViolation { field, message } in part.listed {
            self.add(field, message);
        }
        self.more += part.more;
    }

    /// True if there are no violations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    #[must_use]
    pub fn listed(&self) -> &[FieldViolation] {
        &self.listed
    }

    /// Number of violations that are not listed.
    #[must_use]
    pub fn more(&self) -> usize {
        self.more
    }
}

impl std::error::Error for Violations {}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldViolation { field, message }) in self.listed.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{field}: {message}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
