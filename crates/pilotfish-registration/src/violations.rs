//! What is wrong with a request, field by field.

use std::fmt;

/// One field that is wrong. The path is in the words of the API: `ports[1].number`, `labels["a key"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Where.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// All fields that are wrong, at most [`Violations::MAX`] of them. Never empty as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    listed: Vec<FieldViolation>,
    more: usize,
}

impl Violations {
    /// How many are listed; further ones are counted.
    pub const MAX: usize = 16;

    /// One field that is wrong.
    #[must_use]
    pub fn one(field: impl Into<String>, message: impl Into<String>) -> Self {
        let mut violations = Self::default();
        violations.add(field, message);
        violations
    }

    /// Adds a field.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        match self.listed.len() < Self::MAX {
            true => self.listed.push(FieldViolation { field: field.into(), message: message.into() }),
            false => self.more += 1,
        }
    }

    /// Adds those of a part, whose fields lie below `prefix`.
    pub fn nest(&mut self, prefix: &str, part: Self) {
        for FieldViolation { field, message } in part.listed {
            self.add(format!("{prefix}.{field}"), message);
        }
        self.more += part.more;
    }

    /// Adds those of a part, whose fields lie beside those that are there.
    pub fn extend(&mut self, part: Self) {
        for FieldViolation { field, message } in part.listed {
            self.add(field, message);
        }
        self.more += part.more;
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The first of them.
    #[must_use]
    pub fn listed(&self) -> &[FieldViolation] {
        &self.listed
    }

    /// How many more there are than are listed.
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
