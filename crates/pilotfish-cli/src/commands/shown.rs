//! How answers are asked for and shown: of which control plane, in which form, once or again and again.

use crate::client::{Client, Connection};
use crate::error::CliError;
use crate::output::{Output, Screen, Watch, clear, say};
use clap::Args;
use pilotfish_api::v1::Page;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::process::ExitCode;
use std::time::Duration;

/// The flags of commands that show an answer once, or again and again.
#[derive(Args, Clone, Debug)]
pub struct Shown {
    /// How it is written.
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    watch: Watch,
    #[command(flatten)]
    connection: Connection,
}

/// The flags of commands that show a list.
#[derive(Args, Clone, Debug)]
pub(super) struct Listed {
    /// How many are shown at most
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    limit: usize,
    #[command(flatten)]
    pub(super) shown: Shown,
}

impl Shown {
    /// The client of the control plane that the flags name.
    pub(super) fn client(&self) -> Client {
        self.connection.client()
    }

    /// Asks for an answer and shows it.
    pub(super) async fn one<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        text: impl Fn(&T, &Screen) -> String,
    ) -> Result<ExitCode, CliError> {
        self.judged(path, query, text, |_| ExitCode::SUCCESS).await
    }

    /// The same; `code` is that of what was shown last.
    pub(super) async fn judged<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        text: impl Fn(&T, &Screen) -> String,
        code: impl Fn(&T) -> ExitCode,
    ) -> Result<ExitCode, CliError> {
        let show = async |client: &Client| {
            let answer: T = client.get(path, query).await?;
            self.output.write(&answer, |screen| text(&answer, screen))?;
            Ok(code(&answer))
        };
        self.repeat(show).await
    }

    /// Asks for a list, so many at most, and shows it. `code` is that of what was shown last.
    pub(super) async fn list<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        limit: usize,
        text: impl Fn(&Page<T>, &Screen) -> String,
        code: impl Fn(&[T]) -> ExitCode,
    ) -> Result<ExitCode, CliError> {
        let show = async |client: &Client| {
            let mut page: Page<T> = client.list(path, query, limit).await?;
            page.items.truncate(limit);
            self.output.write(&page, |screen| text(&page, screen))?;
            Ok(code(&page.items))
        };
        self.repeat(show).await
    }

    /// Shows an answer once, or again and again. What fails once it was shown is said and tried again.
    pub(super) async fn repeat(
        &self,
        show: impl AsyncFn(&Client) -> Result<ExitCode, CliError>,
    ) -> Result<ExitCode, CliError> {
        let client = self.connection.client();
        let Some(every) = self.watch.watch else { return show(&client).await };
        clear()?;
        show(&client).await?;
        loop {
            tokio::time::sleep(every.max(Duration::from_millis(100))).await;
            clear()?;
            if let Err(error) = show(&client).await {
                if std::error::Error::source(&error).is_some_and(|cause| cause.is::<std::io::Error>()) {
                    return Err(error);
                }
                // The control plane may come back.
                say(&format!("error: {error}"));
            }
        }
    }
}

impl Listed {
    /// As [`Shown::list`].
    pub(super) async fn run<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        text: impl Fn(&Page<T>, &Screen) -> String,
        code: impl Fn(&[T]) -> ExitCode,
    ) -> Result<ExitCode, CliError> {
        self.shown.list(path, query, self.limit, text, code).await
    }
}

/// The exit code of a list that is good as it is.
pub(super) fn good<T>(_: &[T]) -> ExitCode {
    ExitCode::SUCCESS
}

/// Says that a list goes on.
pub(super) fn and_more(shown: usize, total: usize) -> String {
    if shown < total {
        format!("... {} more; --limit shows them, filters narrow it\n", total - shown)
    } else {
        String::new()
    }
}
