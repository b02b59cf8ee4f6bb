//! Limit of open files, shared by connections, listeners, watches and files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files reserved for other uses: registries, API servers, admin pages, webhooks, stores.
const OTHERS: usize = 2_048;

/// Returns the connection limit of each of `ports` ports: the setting, or the default if open files suffice
/// for it. Raises the limit of open files as far as the system permits.
pub(super) fn connections(set: Option<usize>, default: usize, ports: usize) -> usize {
    let open_files = raise();
    let possible = fitting(open_files, ports);
    match set {
        Some(set) => {
            if set > possible {
                tracing::warn!(
                    max_connections = set,
                    open_files,
                    "the limit of open files is reached before --max-connections: raise it (ulimit -n, \
                     LimitNOFILE)"
                );
            }
            set
        }
        None => default.min(possible),
    }
}

/// Returns the connections of each port for which the open files suffice.
fn fitting(open_files: usize, ports: usize) -> usize {
    let others = OTHERS.min(open_files / 2);
    ((open_files - others) / ports.max(1)).max(1)
}

/// Raises the limit of open files to the process's hard limit, and returns it.
fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files cannot be raised");
            current
        }
    };
    raised.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        assert_eq!(fitting(1_024, 2), 256);
        assert_eq!(fitting(65_536, 1), 63_488);
        assert_eq!((fitting(0, 2), fitting(1, 0)), (1, 1));
        assert!(fitting(usize::MAX, 2) > 1_000_000);
    }
}
