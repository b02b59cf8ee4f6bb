//! Terminal of `pilotfish top`: its size, and keys without Enter.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::Read;
use tokio::sync::mpsc;

/// Columns and lines of a terminal with unknown size.
const USUAL: (usize, usize) = (80, 24);

/// Columns and lines of the terminal.
pub(super) fn size() -> (usize, usize) {
    let known = tcgetwinsize(std::io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    known.map_or(USUAL, |size| (size.ws_col.into(), size.ws_row.into()))
}

/// Unbuffered keyboard input without echo, until dropped. Ctrl-C stays a signal.
pub(super) struct Keys(Option<Termios>);

impl Keys {
    /// Changes nothing if stdin is not a terminal.
    pub(super) fn begin() -> Self {
        let before = tcgetattr(std::io::stdin()).ok();
        if let Some(before) = &before {
            let mut now = before.clone();
            now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // On an error, q needs an Enter.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &now);
        }
        Self(before)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Fails if the terminal is closed.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Receives a message when q is pressed. The thread may block on stdin until the process ends.
pub(super) fn quits() -> mpsc::Receiver<()> {
    let (told, quits) = mpsc::channel(1);
    std::thread::spawn(move || {
        let quits = |key: &std::io::Result<u8>| matches!(key, Ok(b'q' | b'Q'));
        if std::io::stdin().lock().bytes().take_while(Result::is_ok).any(|key| quits(&key)) {
            // Fails if the receiver is gone.
            let _ = told.blocking_send(());
        }
    });
    quits
}
