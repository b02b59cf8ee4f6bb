//! Flags and loop for showing responses: control plane, output format, and repetition.

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
    /// Maximum number of rows to show
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    limit: usize,
    #[command(flatten)]
    pub(super) shown: Shown,
}

impl Shown {
    /// Creates the client of the control plane that the flags select.
    pub(super) fn client(&self) -> Client {
        self.connection.client()
    }

    /// Requests a resource and shows it.
    pub(super) async fn one<T: Serialize + DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        text: impl Fn(&T, &Screen) -> String,
    ) -> Result<ExitCode, CliError> {
        self.judged(path, query, text, |_| ExitCode::SUCCESS).await
    }

    /// Requests a resource and shows it; `code` computes the exit code from the last one.
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

    /// Requests a list, up to a maximum, and shows it. `code` computes the exit code from the last one.
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

    /// Shows a response once or repeatedly. Errors after the first response are printed, and the request is
    /// repeated.
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
                // The control plane may recover.
                say(&format!("error: {error}"));
            }
        }
    }
}

impl Listed {
    /// Requests and prints the list, as [`Shown::list`].
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

/// Exit code of a list that is no finding in itself.
pub(super) fn good<T>(_: &[T]) -> ExitCode {
    ExitCode::SUCCESS
}

/// Note that a list is incomplete.
pub(super) fn and_more(shown: usize, total: usize) -> String {
    if shown < total {
        format!("... {} more; --limit shows them, filters narrow it\n", total - shown)
    } else {
        String::new()
    }
}
