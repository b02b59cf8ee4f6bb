//! Result of a step: the counts that its test executables print, and the beginning of each failure.

/// Lines of one failed test that the report repeats.
const LINES_OF_A_FAILURE: usize = 12;
/// Lines of all failures of a step that the report repeats.
const LINES_OF_ALL: usize = 120;

/// Result of one step.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Beginning of the output of each failed test.
    pub(crate) failures: Vec<String>,
    /// Lines that are still taken from the failed test whose output is being read.
    wanted: usize,
}

impl Outcome {
    pub(crate) fn of(ok: bool) -> Self {
        Self { passed: u64::from(ok), failed: u64::from(!ok), ..Self::default() }
    }

    /// Reads a line of a test executable: its counts, or a part of what a failed test says.
    pub(crate) fn count(&mut self, line: &str) {
        if let Some((passed, failed)) = counts(line) {
            self.passed += passed;
            self.failed += failed;
            self.wanted = 0;
        } else if line.starts_with("---- ") {
            self.wanted = LINES_OF_A_FAILURE;
        } else if line == "failures:" || line == "stack backtrace:" {
            self.wanted = 0;
        }
        if self.wanted > 0 && self.failures.len() < LINES_OF_ALL {
            self.wanted -= 1;
            if !line.is_empty() {
                self.failures.push(line.to_owned());
            }
        }
    }

    /// Counts a failure for a test process that crashed and so printed no counts.
    pub(crate) fn of_process(mut self, ok: bool) -> Self {
        if !ok && self.failed == 0 {
            self.failed = 1;
        }
        self
    }

    /// Prints findings; any fails the check.
    pub(crate) fn of_findings(wrong: &[String]) -> Self {
        for line in wrong {
            eprintln!("  {line}");
        }
        Self::of(wrong.is_empty())
    }
}

/// Counts in the last line of a test executable: `test result: ok. 3 passed; 1 failed; ...`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |what: &str| -> Option<u64> {
        let before = rest.split(what).next()?;
        before.split([' ', ';', '.']).rfind(|word| !word.is_empty())?.parse().ok()
    };
    Some((number(" passed")?, number(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_last_line_of_a_test_executable() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(counts(line), Some((12, 3)));
        assert_eq!(counts("test result: ok. 0 passed; 0 failed; 0 ignored"), Some((0, 0)));
        assert_eq!(counts("test tests::passed ... ok"), None);
        assert_eq!(counts("test result: words"), None);
    }

    #[test]
    fn failures_are_the_beginnings_of_what_failed_tests_say() {
        let mut outcome = Outcome::default();
        let more = "more\n".repeat(LINES_OF_A_FAILURE);
        let output = format!(
            "test a ... FAILED\ntest b ... ok\n\nfailures:\n\n---- a stdout ----\n\npanicked at a.rs:3\n{more}\n\nfailures:\n    a\n\n\
             test result: FAILED. 1 passed; 1 failed\n"
        );
        output.lines().for_each(|line| outcome.count(line));
        assert_eq!((outcome.passed, outcome.failed), (1, 1));
        assert_eq!(outcome.failures[..2], ["---- a stdout ----", "panicked at a.rs:3"]);
        assert!(outcome.failures[2..].iter().all(|line| line == "more"), "{:?}", outcome.failures);
        assert!(outcome.failures.len() < LINES_OF_A_FAILURE);
    }
}
