//! Parameters of requests.

use pilotfish_registration_server::Failure;
use std::time::Duration;

/// Wait of a blocking query without one, as in Consul.
const DEFAULT_WAIT: Duration = Duration::from_secs(5 * 60);
/// Maximum wait, as in Consul.
const MAX_WAIT: Duration = Duration::from_secs(10 * 60);
/// A wait is longer by up to this part, so that clients do not return together.
const JITTER_PART: u32 = 16;

/// Parameters of a request.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// Returns the first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns all values of a parameter.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| &**value)
    }

    /// True if a flag is set: with no value, or one that is not false.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// Returns the index that a blocking query waits at; `None` for a query that does not wait.
    pub(crate) fn index(&self) -> Result<Option<u64>, Failure> {
        match self.get("index") {
            None | Some("") => Ok(None),
            Some(text) => match text.parse() {
                Ok(index) => Ok(Some(index).filter(|index| *index > 0)),
                Err(_) => Err(Failure::invalid(format!("index: {text:?} is no index"))),
            },
        }
    }

    /// Returns the time that a blocking query waits.
    pub(crate) fn wait(&self) -> Result<Duration, Failure> {
        let Some(text) = self.get("wait").filter(|text| !text.is_empty()) else { return Ok(DEFAULT_WAIT) };
        match pilotfish_duration::parse(text) {
            Ok(Duration::ZERO) => Ok(DEFAULT_WAIT),
            Ok(wait) => Ok(wait.min(MAX_WAIT)),
            Err(error) => Err(Failure::invalid(format!("wait: {text:?}: {error}"))),
        }
    }

    /// Returns the longest time that a request waits.
    pub(crate) fn longest(&self) -> Duration {
        match (self.index(), self.wait()) {
            (Ok(Some(_)), Ok(wait)) => wait + wait / JITTER_PART,
            _ => Duration::ZERO,
        }
    }
}

/// Returns a wait with jitter, by a number from 0 to 1.
pub(crate) fn with_jitter(wait: Duration, fraction: f64) -> Duration {
    wait + (wait / JITTER_PART).mul_f64(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_waits_within_bounds() {
        let seconds = Duration::from_secs;
        for (text, index, wait, longest) in [
            ("", None, 300, 0),
            ("index=0&wait=10s", None, 10, 0),
            ("index=7", Some(7), 300, 318),
            ("index=7&wait=32s", Some(7), 32, 34),
            ("index=7&wait=0s", Some(7), 300, 318),
            ("index=7&wait=24h", Some(7), 600, 637),
        ] {
            let query = Query::parse(text);
            assert_eq!((query.index().unwrap(), query.wait().unwrap()), (index, seconds(wait)), "{text}");
            assert_eq!(query.longest().as_secs(), longest, "{text}");
        }
        for text in ["index=x&wait=1s", "index=1&wait=x"] {
            let query = Query::parse(text);
            assert!(query.index().is_err() || query.wait().is_err());
            assert_eq!(query.longest(), Duration::ZERO, "{text}");
        }
        assert_eq!(with_jitter(seconds(32), 0.5), seconds(33));
    }

    #[test]
    fn parameters_can_repeat_and_flags_need_no_value() {
        let query = Query::parse("tag=a&tag=b+c&passing&enable=False&stale=");
        assert_eq!(query.all("tag").collect::<Vec<_>>(), ["a", "b c"]);
        assert!(query.has("passing") && query.has("stale") && !query.has("enable") && !query.has("near"));
    }
}
