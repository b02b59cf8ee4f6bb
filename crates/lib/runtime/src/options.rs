//! Options of an address: `ADDRESS?OPTION=VALUE&...`.

use std::collections::BTreeMap;

/// Description of an option, for `--help` and its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    pub name: &'static str,
    /// Placeholder for the value, for example `DURATION`.
    pub value: &'static str,
    /// Short description with the default.
    pub about: &'static str,
}

/// Values of the options of an address. Each reader takes those that it knows; those left over are mistakes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionValues(BTreeMap<String, String>);

/// Mistakes in an address and its options, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct OptionsError(pub Vec<String>);

impl OptionValues {
    /// Removes and returns an option.
    pub fn take(&mut self, option: &str) -> Option<String> {
        self.0.remove(option)
    }

    /// Removes and parses an option. An error of its value is added to `mistakes`.
    pub fn parse<T>(
        &mut self,
        option: &str,
        mistakes: &mut Vec<String>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.take(option)?;
        parse(&text).map_err(|error| mistakes.push(format!("{option}={text}: {error}"))).ok()
    }

    /// True if the option is given and not taken yet.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.0.contains_key(option)
    }

    /// Names of the options that are not taken yet.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl FromIterator<(String, String)> for OptionValues {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(options: I) -> Self {
        Self(options.into_iter().collect())
    }
}
