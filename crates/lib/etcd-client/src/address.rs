//! The servers of a cluster, and the login.

use crate::Client;
use pilotfish_connect::{Connector, Scheme, SecretOption, Server, Target, TlsOptions};
use pilotfish_runtime::{Jitter, OptionSpec, OptionValues, SessionError};

const SCHEMES: &[Scheme] =
    &[Scheme { name: "http", port: 2379, is_tls: false }, Scheme { name: "https", port: 2379, is_tls: true }];

/// The options of a login.
pub const LOGIN_OPTIONS: &[OptionSpec] = &[
    OptionSpec { name: "user", value: "NAME", about: "log in as this user [default: nobody]" },
    OptionSpec {
        name: "passwordFile",
        value: "FILE",
        about: "the user's password [default: the environment's PILOTFISH_ETCD_PASSWORD]",
    },
];

/// The servers of one cluster, with their connector and login.
#[derive(Debug)]
pub struct Servers {
    list: Vec<Server>,
    /// Index of the server in use.
    next: usize,
    connector: Connector,
    login: Option<Login>,
}

/// Credentials for etcd's `Authenticate`.
#[derive(Debug)]
struct Login {
    user: String,
    password: SecretOption,
}

impl Servers {
    /// Parses an address, and takes [`LOGIN_OPTIONS`] and [`pilotfish_connect::TLS_OPTIONS`].
    /// Errors are added to `mistakes`.
    pub fn take(address: &str, options: &mut OptionValues, mistakes: &mut Vec<String>) -> Option<Self> {
        let target = Target::parse(address, SCHEMES).map_err(|mistake| mistakes.push(mistake)).ok();
        let is_tls = target.as_ref().is_some_and(|target| target.scheme.is_tls);
        if target.as_ref().is_some_and(|target| !target.path.is_empty()) {
            mistakes.push("the address has a path; the option prefix says which keys are meant".to_owned());
        }
        let tls = TlsOptions::take(options, is_tls, mistakes);
        let login = login(options, mistakes);
        let connector = Connector::new(tls.map(|tls| tls.with_alpn(&["h2"])));
        Some(Self::new(target?.servers, connector, login))
    }

    fn new(list: Vec<Server>, connector: Connector, login: Option<Login>) -> Self {
        // Spreads clients that start at once over the servers.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to the number of servers"
        )]
        let next = (Jitter::default().fraction() * list.len() as f64) as usize;
        Self { list, next, connector, login }
    }

    /// Number of servers in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there is no server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the server in use.
    ///
    /// # Errors
    /// When there is none.
    pub fn current(&self) -> Result<&Server, SessionError> {
        let server = self.list.get(self.next % self.list.len().max(1));
        server.ok_or_else(|| SessionError::new("the address names no server"))
    }

    /// Selects the next server.
    pub fn skip(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Returns all servers as in the address.
    #[must_use]
    pub fn describe(&self) -> String {
        let scheme = if self.connector.is_tls() { "https" } else { "http" };
        let list: Vec<String> = self.list.iter().map(Server::to_string).collect();
        format!("{scheme}://{}", list.join(","))
    }

    /// Returns a client of the server in use, logged in. `requested` is called if a login request is sent.
    ///
    /// # Errors
    /// When the password cannot be read, or the server refuses or cannot be reached.
    pub async fn client(&self, requested: impl FnOnce() + Send) -> Result<Client, SessionError> {
        let mut client = Client::new(self.connector.clone(), self.current()?)?;
        if let Some(login) = &self.login {
            let password = login.password.read().await?.unwrap_or_default();
            requested();
            client.authenticate(&login.user, &password).await?;
        }
        Ok(client)
    }
}

fn login(options: &mut OptionValues, mistakes: &mut Vec<String>) -> Option<Login> {
    let has_file = options.has("passwordFile");
    let password = SecretOption::take(options, "password", Some("PILOTFISH_ETCD_PASSWORD"));
    match options.take("user") {
        Some(user) if password.is_set() => Some(Login { user, password }),
        Some(_) => {
            mistakes
                .push("user needs passwordFile, or PILOTFISH_ETCD_PASSWORD in the environment".to_owned());
            None
        }
        None => {
            if has_file {
                mistakes.push("passwordFile needs user".to_owned());
            }
            None
        }
    }
}
