//! DNS messages: encoding of questions and decoding of answers.

use crate::name::{Kind, Name, Question, Records, Srv};
use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord};
use std::net::IpAddr;
use std::time::Duration;

/// Maximum size of a UDP answer in bytes: fits every network without fragmentation (DNS flag day 2020).
pub(crate) const MAX_DATAGRAM: u16 = 1232;
/// Maximum number of aliases from a name to its records.
const MAX_ALIASES: usize = 8;
/// Maximum number of records of one question.
const MAX_RECORDS: usize = 1000;
/// TTL of a negative answer without an SOA record: RFC 2308 leaves it to the client.
const NEGATIVE_TTL: Duration = Duration::from_secs(30);

/// Decoded content of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The records and their TTL.
    Records(Records, Duration),
    /// An alias to a name whose records are not in the answer, and its TTL.
    Alias(Name, Duration),
    /// The answer does not fit a datagram.
    Truncated,
}

/// Error of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// The answer is to another question, or forged.
    #[error("the answer is to another question")]
    NotOurs,
    /// Not a DNS message.
    #[error("the answer cannot be read")]
    Unreadable,
    /// The server failed or refused: nothing is known of the name.
    #[error("the server answered {0}")]
    Failure(&'static str),
    /// A loop or too long a chain of aliases.
    #[error("too many DNS aliases, or a loop of them")]
    Aliases,
    /// The question cannot be encoded.
    #[error("the name is not valid in a DNS question")]
    Question,
}

/// Encodes a question.
///
/// # Errors
/// When the name is invalid.
pub(crate) fn write(question: &Question, id: u16) -> Result<Vec<u8>, WireError> {
    let name = simple_dns::Name::new(question.name.as_str()).map_err(|_| WireError::Question)?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let kind = QTYPE::TYPE(question.kind.of_dns());
    packet.questions.push(simple_dns::Question::new(name, kind, QCLASS::CLASS(CLASS::IN), false));
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: MAX_DATAGRAM, version: 0 });
    packet.build_bytes_vec().map_err(|_| WireError::Question)
}

/// Decodes an answer to a question.
///
/// # Errors
/// When the message is not a valid answer to it.
pub(crate) fn read(question: &Question, id: u16, message: &[u8]) -> Result<Said, WireError> {
    // Checked before parsing: only the queried server knows the id.
    if message.get(..2) != Some(&id.to_be_bytes()) {
        return Err(WireError::NotOurs);
    }
    let packet = Packet::parse(message).map_err(|_| WireError::Unreadable)?;
    let asked = packet.questions.first();
    let is_ours = asked.is_some_and(|asked| {
        Name::parse(&asked.qname.to_string()).as_ref() == Some(&question.name)
            && asked.qtype == QTYPE::TYPE(question.kind.of_dns())
    });
    // A server that cannot parse a question does not repeat it in its answer.
    let repeats = asked.is_some() || packet.rcode() == RCODE::NoError;
    if !packet.has_flags(PacketFlag::RESPONSE) || (repeats && !is_ours) {
        return Err(WireError::NotOurs);
    }
    match packet.rcode() {
        RCODE::NoError if packet.has_flags(PacketFlag::TRUNCATION) => Ok(Said::Truncated),
        RCODE::NoError => records(question, &packet),
        RCODE::NameError => Ok(Said::Records(Records::none(question.kind), negative_ttl(&packet))),
        RCODE::ServerFailure => Err(WireError::Failure("SERVFAIL")),
        RCODE::Refused => Err(WireError::Failure("REFUSED")),
        RCODE::FormatError => Err(WireError::Failure("FORMERR")),
        RCODE::NotImplemented => Err(WireError::Failure("NOTIMP")),
        _ => Err(WireError::Failure("an error")),
    }
}

/// Follows aliases from the queried name, and returns the records of the last one.
fn records(question: &Question, packet: &Packet<'_>) -> Result<Said, WireError> {
    let mut name = question.name.clone();
    let mut ttl = u32::MAX;
    let mut aliases = 0;
    while let Some((target, alias_ttl)) = alias(packet, &name) {
        aliases += 1;
        if aliases > MAX_ALIASES {
            return Err(WireError::Aliases);
        }
        (name, ttl) = (target, ttl.min(alias_ttl));
    }
    let own = packet.answers.iter().filter(|record| is_of(record, &name));
    let (mut found, mut services, mut addresses) = (false, Vec::new(), Vec::new());
    for record in own.filter(|record| record.match_qtype(QTYPE::TYPE(question.kind.of_dns()))) {
        found = true;
        ttl = ttl.min(record.ttl);
        match &record.rdata {
            RData::SRV(srv) => services.extend(Srv::read(srv)),
            RData::A(a) => addresses.push(IpAddr::V4(a.address.into())),
            RData::AAAA(aaaa) => addresses.push(IpAddr::V6(aaaa.address.into())),
            _ => {}
        }
    }
    if !found {
        let of_alias = Duration::from_secs(ttl.into());
        if aliases > 0 && !is_denied(packet) {
            return Ok(Said::Alias(name, of_alias));
        }
        if is_referral(packet) {
            return Err(WireError::Failure("with other servers: it does not resolve names for others"));
        }
        return Ok(Said::Records(Records::none(question.kind), negative_ttl(packet).min(of_alias)));
    }
    let records = match question.kind {
        Kind::Srv => Records::Srv(sorted(services)),
        Kind::A | Kind::Aaaa => Records::Addresses(sorted(addresses)),
    };
    Ok(Said::Records(records, Duration::from_secs(ttl.into())))
}

fn alias(packet: &Packet<'_>, name: &Name) -> Option<(Name, u32)> {
    packet.answers.iter().filter(|record| is_of(record, name)).find_map(|record| match &record.rdata {
        RData::CNAME(target) => Some((Name::parse(&target.0.to_string())?, record.ttl)),
        _ => None,
    })
}

fn is_of(record: &ResourceRecord<'_>, name: &Name) -> bool {
    record.class == CLASS::IN && Name::parse(&record.name.to_string()).as_ref() == Some(name)
}

fn sorted<T: Ord>(mut records: Vec<T>) -> Vec<T> {
    records.sort();
    records.dedup();
    records.truncate(MAX_RECORDS);
    records
}

/// TTL of a negative answer, from the SOA record: RFC 2308, section 5.
fn negative_ttl(packet: &Packet<'_>) -> Duration {
    let of_zone = packet.name_servers.iter().find_map(|record| match &record.rdata {
        RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
        _ => None,
    });
    of_zone.map_or(NEGATIVE_TTL, |seconds| Duration::from_secs(seconds.into()))
}

/// True for a negative answer of the zone itself, with an SOA record: RFC 2308, section 2.
fn is_denied(packet: &Packet<'_>) -> bool {
    packet.name_servers.iter().any(|record| matches!(record.rdata, RData::SOA(_)))
}

/// True for a referral to other servers: the server does not resolve recursively.
fn is_referral(packet: &Packet<'_>) -> bool {
    !is_denied(packet) && packet.name_servers.iter().any(|record| matches!(record.rdata, RData::NS(_)))
}

#[cfg(test)]
mod tests;
