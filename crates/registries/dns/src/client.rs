//! DNS client: queries over UDP, and over TCP if an answer does not fit a datagram.

use crate::name::{Question, Records};
use crate::wire::{self, Said, WireError};
use pilotfish_connect::Server;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

/// Timeout of one query to one server.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum number of attempts of a query, round-robin over the servers: datagrams get lost.
const ATTEMPTS: usize = 3;
/// Maximum number of aliases that are followed across answers.
const MAX_ALIASES: usize = 8;

/// Error of a query.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("{server}: {source}")]
    Wire { server: String, source: WireError },
    #[error("{server}: {source}")]
    Io { server: String, source: io::Error },
    #[error("{server} did not answer within 2 s")]
    Timeout { server: String },
    #[error("{server} has no address")]
    NoAddress { server: String },
    #[error("no server is configured")]
    NoServer,
    #[error("too many DNS aliases, or a loop of them")]
    Aliases,
    #[error("the system's random number generator failed")]
    Random,
}

/// Client of a list of name servers.
pub(crate) struct Client {
    servers: Vec<Server>,
    random: SystemRandom,
}

impl Client {
    pub(crate) fn new(servers: Vec<Server>) -> Self {
        Self { servers, random: SystemRandom::new() }
    }

    /// Returns the records of a question and their TTL. Servers are tried in turn until one answers.
    pub(crate) async fn ask(&self, question: &Question) -> Result<(Records, Duration), AskError> {
        let mut asked = question.clone();
        let mut ttl = Duration::MAX;
        for _ in 0..=MAX_ALIASES {
            match self.ask_servers(&asked).await? {
                Said::Records(records, own) => return Ok((records, ttl.min(own))),
                Said::Alias(name, own) => (asked.name, ttl) = (name, ttl.min(own)),
                // Truncation is only reported for UDP, and `ask_server` retries over TCP.
                Said::Truncated => return Err(AskError::Aliases),
            }
        }
        Err(AskError::Aliases)
    }

    async fn ask_servers(&self, question: &Question) -> Result<Said, AskError> {
        let mut failure = AskError::NoServer;
        for server in self.servers.iter().cycle().take(ATTEMPTS.max(self.servers.len())) {
            match self.ask_server(server, question).await {
                Ok(said) => return Ok(said),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn ask_server(&self, server: &Server, question: &Question) -> Result<Said, AskError> {
        let within = |result: Result<_, _>| {
            result.unwrap_or_else(|_| Err(AskError::Timeout { server: server.to_string() }))
        };
        let said = within(timeout(TIMEOUT, self.by_datagram(server, question)).await)?;
        if said != Said::Truncated {
            return Ok(said);
        }
        within(timeout(TIMEOUT, self.by_stream(server, question)).await)
    }

    /// Each query has its own socket and id, so that an off-path attacker can guess neither.
    async fn by_datagram(&self, server: &Server, question: &Question) -> Result<Said, AskError> {
        let wire = |source| AskError::Wire { server: server.to_string(), source };
        let io = |source| AskError::Io { server: server.to_string(), source };
        let id = self.id()?;
        let message = wire::write(question, id).map_err(wire)?;
        let address = address(server).await?;
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await.map_err(io)?;
        socket.connect(address).await.map_err(io)?;
        socket.send(&message).await.map_err(io)?;
        let mut answer = vec![0; usize::from(wire::MAX_DATAGRAM) + 1];
        loop {
            let length = socket.recv(&mut answer).await.map_err(io)?;
            match wire::read(question, id, answer.get(..length).unwrap_or_default()) {
                // Not from the queried server: its answer may still arrive.
                Err(WireError::NotOurs) => {}
                said => return said.map_err(wire),
            }
        }
    }

    async fn by_stream(&self, server: &Server, question: &Question) -> Result<Said, AskError> {
        let wire = |source| AskError::Wire { server: server.to_string(), source };
        let io = |source| AskError::Io { server: server.to_string(), source };
        let id = self.id()?;
        let message = wire::write(question, id).map_err(wire)?;
        let length = u16::try_from(message.len()).map_err(|_| wire(WireError::Question))?;
        let mut stream = TcpStream::connect(address(server).await?).await.map_err(io)?;
        stream.write_all(&[&length.to_be_bytes()[..], &message].concat()).await.map_err(io)?;
        let length = stream.read_u16().await.map_err(io)?;
        let mut answer = vec![0; length.into()];
        stream.read_exact(&mut answer).await.map_err(io)?;
        match wire::read(question, id, &answer).map_err(wire)? {
            Said::Truncated => Err(wire(WireError::Unreadable)),
            said => Ok(said),
        }
    }

    fn id(&self) -> Result<u16, AskError> {
        let mut bytes = [0; 2];
        self.random.fill(&mut bytes).map_err(|_| AskError::Random)?;
        Ok(u16::from_be_bytes(bytes))
    }
}

/// Resolves the address of a name server with the system's resolver.
async fn address(server: &Server) -> Result<SocketAddr, AskError> {
    let found = lookup_host((&*server.host, server.port)).await;
    let mut found = found.map_err(|source| AskError::Io { server: server.to_string(), source })?;
    found.next().ok_or_else(|| AskError::NoAddress { server: server.to_string() })
}
