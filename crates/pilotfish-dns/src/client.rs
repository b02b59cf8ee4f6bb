//! Asks name servers: by UDP, and by TCP where an answer does not fit a datagram.

use crate::name::{Question, Records};
use crate::wire::{self, Said, WireError};
use pilotfish_registry_client::Server;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

/// How long a server has for one answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often a question is asked at least, by turns of the servers: datagrams get lost.
const ATTEMPTS: usize = 3;
/// How many aliases are followed from one answer to the next.
const MAX_ALIASES: usize = 8;

/// Why a question has no answer.
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
    #[error("no server is named")]
    NoServer,
    #[error("aliases lead to no end")]
    Aliases,
    #[error("this machine gives no random numbers")]
    Random,
}

/// Asks these servers.
pub(crate) struct Client {
    servers: Vec<Server>,
    random: SystemRandom,
}

impl Client {
    pub(crate) fn new(servers: Vec<Server>) -> Self {
        Self { servers, random: SystemRandom::new() }
    }

    /// The records of a question and for how long they hold. Servers are asked by turns until one answers.
    pub(crate) async fn ask(&self, question: &Question) -> Result<(Records, Duration), AskError> {
        let mut asked = question.clone();
        let mut ttl = Duration::MAX;
        for _ in 0..=MAX_ALIASES {
            match self.ask_servers(&asked).await? {
                Said::Records(records, own) => return Ok((records, ttl.min(own))),
                Said::Alias(name, own) => (asked.name, ttl) = (name, ttl.min(own)),
                // Over TCP nothing is: see `ask_server`.
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

    /// Every question has a socket and a number of its own: who does not see it can guess neither.
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
                // Not from the one who was asked: the answer may yet come.
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

/// The address of a server; one that is named is looked up as the machine does.
async fn address(server: &Server) -> Result<SocketAddr, AskError> {
    let found = lookup_host((&*server.host, server.port)).await;
    let mut found = found.map_err(|source| AskError::Io { server: server.to_string(), source })?;
    found.next().ok_or_else(|| AskError::NoAddress { server: server.to_string() })
}
