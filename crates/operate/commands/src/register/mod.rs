//! `pilotfish register`: runs any program as a registered service.

mod args;
mod instance;
mod program;

pub use args::Register;

use anyhow::{Context, Result};
use pilotfish_registration_client::{Client, Error, Instance, Registration, State};
use program::{Program, Signals, ends, exit_code, is_sent_by_terminal};
use rustix::process::Signal;
use std::net::{IpAddr, SocketAddr};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Interval between connection attempts to the program's port until it answers.
const TRY_PORT: Duration = Duration::from_millis(50);
/// Timeout of an attempt.
const TRY_TIME: Duration = Duration::from_secs(1);
/// Time until the log says that the port does not answer, and between repetitions.
const SAY: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(10)];
/// Exit code for a program that was never registered, in place of its own 0.
const NEVER_REGISTERED: u8 = 1;
/// Timeout of a deregistration, after which the lease is left to expire.
const GOODBYE: Duration = Duration::from_secs(3);

/// Event that ended a wait.
enum Event {
    Ended(ExitStatus),
    Signal(Signal),
    Answers,
}

impl Register {
    /// Runs the program to its end. Returns its exit code.
    ///
    /// # Errors
    /// When the program cannot be started, or the server refuses the instance.
    pub async fn run(self) -> Result<ExitCode> {
        self.check()?;
        let client = Client::new(self.server.options())?;
        client.check_files().await?;
        let address = self.address(&client).await?;
        let instance = self.instance(address)?;
        let mut signals = Signals::listen()?;
        let mut program = Program::start(&self.command, self.port.get())?;
        let port = SocketAddr::new(address, self.port.get());
        match before(&mut program, &mut signals, port).await? {
            Some(status) => {
                let name = program.name();
                tracing::warn!(
                    "{name} ended and was never registered: port {port} never accepted a connection (--port)"
                );
                Ok(failed(status).into())
            }
            None => serve(&client, instance, program, signals, self.drain).await,
        }
    }

    /// Returns the address at which others reach the program.
    async fn address(&self, client: &Client) -> Result<IpAddr> {
        match self.address {
            Some(address) => Ok(address),
            None => client.own_address().await.context("name this machine's address with --address"),
        }
    }
}

/// Waits until the program's port answers. Returns `Some` if the program ended before.
async fn before(
    program: &mut Program,
    signals: &mut Signals,
    port: SocketAddr,
) -> Result<Option<ExitStatus>> {
    let answers = answers(port, program.name().to_owned());
    tokio::pin!(answers);
    loop {
        let event = tokio::select! {
            status = program.ended() => Event::Ended(status?),
            signal = signals.next() => Event::Signal(signal),
            () = &mut answers => Event::Answers,
        };
        match event {
            Event::Ended(status) => return Ok(Some(status)),
            Event::Signal(signal) => pass_on(program, signal),
            Event::Answers => return Ok(None),
        }
    }
}

/// Resolves when a connection to the port is accepted.
async fn answers(port: SocketAddr, program: String) {
    let mut said = Instant::now();
    let [mut wait, again] = SAY;
    loop {
        if let Ok(Ok(_connection)) = timeout(TRY_TIME, TcpStream::connect(port)).await {
            return;
        }
        if said.elapsed() >= wait {
            (said, wait) = (Instant::now(), again);
            tracing::warn!(
                program, %port,
                "the program's port does not accept connections yet; the program is registered once it does"
            );
        }
        sleep(TRY_PORT).await;
    }
}

/// Keeps the program registered until it ends.
async fn serve(
    client: &Client,
    instance: Instance,
    mut program: Program,
    mut signals: Signals,
    drain: Duration,
) -> Result<ExitCode> {
    let name = format!("{}/{}/{}", instance.namespace, instance.service, instance.id);
    let mut registration = client.keep_registered(instance);
    let mut state = registration.state();
    let mut was_registered = false;
    let status = loop {
        let signal = tokio::select! {
            status = program.ended() => break status?,
            signal = signals.next() => signal,
            () = changed(&mut state) => {
                if let Some(error) = tell(&name, &state.borrow_and_update(), &mut was_registered) {
                    program.signal(Signal::TERM);
                    program.ended().await?;
                    return Err(anyhow::Error::new(error).context(format!("registering {name}")));
                }
                continue;
            }
        };
        if ends(signal) {
            leave(&mut registration, &name, Some(drain)).await;
            if let Some(status) = draining(&mut program, &mut signals, drain).await? {
                break status;
            }
        }
        pass_on(&program, signal);
        if ends(signal) {
            // The service is deregistered, so further signals are only passed on.
            let status = to_the_end(&mut program, &mut signals).await?;
            return Ok(code(&name, status, was_registered).into());
        }
    };
    leave(&mut registration, &name, Some(Duration::ZERO)).await;
    Ok(code(&name, status, was_registered).into())
}

/// Returns the exit code for the program's end, which is a failure if it was never registered.
fn code(name: &str, status: ExitStatus, was_registered: bool) -> u8 {
    if was_registered {
        return exit_code(status);
    }
    tracing::warn!("{name} was never registered: the program ended before the server took it (--server)");
    failed(status)
}

/// Returns the program's exit code, or [`NEVER_REGISTERED`] if that is 0.
fn failed(status: ExitStatus) -> u8 {
    match exit_code(status) {
        0 => NEVER_REGISTERED,
        code => code,
    }
}

async fn changed(state: &mut watch::Receiver<State>) {
    if state.changed().await.is_err() {
        // The registration ended with its deregistration.
        std::future::pending().await
    }
}

/// Logs the state of the registration. Returns an error if the server refuses an instance that it never
/// accepted, because then the flags are wrong.
fn tell(name: &str, state: &State, was_registered: &mut bool) -> Option<Error> {
    match state {
        State::Registered { revision } => {
            *was_registered = true;
            tracing::info!(revision, "{name} is registered");
        }
        State::Registering { error: Some(error) } => {
            tracing::warn!(%error, "{name} is not registered, or its lease is not renewed; trying again");
        }
        State::Registering { error: None } => {}
        State::Refused { error } if *was_registered => {
            tracing::error!(
                %error,
                "the server refuses {name} now; its program keeps running, registration is retried"
            );
        }
        State::Refused { error } => return Some(error.clone()),
    }
    None
}

/// Waits while proxies see the instance as draining. A second signal ends the wait early. Returns `Some` if
/// the program ended.
async fn draining(
    program: &mut Program,
    signals: &mut Signals,
    drain: Duration,
) -> Result<Option<ExitStatus>> {
    if drain.is_zero() {
        return Ok(None);
    }
    tokio::select! {
        status = program.ended() => Ok(Some(status?)),
        signal = signals.next() => {
            tracing::info!(?signal, "a second signal: the rest of the drain time is left out");
            Ok(None)
        }
        () = sleep(drain) => Ok(None),
    }
}

async fn to_the_end(program: &mut Program, signals: &mut Signals) -> Result<ExitStatus> {
    loop {
        let signal = tokio::select! {
            status = program.ended() => return status,
            signal = signals.next() => signal,
        };
        pass_on(program, signal);
    }
}

fn pass_on(program: &Program, signal: Signal) {
    if !is_sent_by_terminal(signal) {
        program.signal(signal);
    }
}

async fn leave(registration: &mut Registration, name: &str, drain: Option<Duration>) {
    match timeout(GOODBYE, registration.deregister(drain)).await {
        Ok(Ok(drain)) if drain.is_zero() => tracing::info!("{name} is deregistered"),
        Ok(Ok(drain)) => tracing::info!(?drain, "{name} is draining"),
        Ok(Err(error)) => {
            tracing::warn!(%error, "{name} could not be deregistered; its lease expires")
        }
        Err(_) => tracing::warn!("{name} could not be deregistered in time; its lease expires"),
    }
}
