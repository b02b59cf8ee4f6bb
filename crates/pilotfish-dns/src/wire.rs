//! Messages of DNS: questions, and what an answer says.

use crate::name::{Kind, Name, Question, Records, Srv};
use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord};
use std::net::IpAddr;
use std::time::Duration;

/// What a server may send in one datagram: what passes every network without fragments (DNS flag day 2020).
pub(crate) const MAX_DATAGRAM: u16 = 1232;
/// How many aliases lead from one name to its records.
const MAX_ALIASES: usize = 8;
/// How many records of one question count.
const MAX_RECORDS: usize = 1000;
/// How long nothing is there, where the server does not say: RFC 2308 leaves it to the client.
const NEGATIVE_TTL: Duration = Duration::from_secs(30);

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// These are the records, for so long.
    Records(Records, Duration),
    /// They are those of another name, which the answer does not hold; for so long.
    Alias(Name, Duration),
    /// They are too many for a datagram.
    Truncated,
}

/// Why a message is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// It belongs to another question, or is a forgery.
    #[error("the answer is to another question")]
    NotOurs,
    /// It is no message of DNS.
    #[error("the answer cannot be read")]
    Unreadable,
    /// The server has a reason not to answer: nothing is known of the name.
    #[error("the server answered {0}")]
    Failure(&'static str),
    /// Aliases lead in a circle, or on and on.
    #[error("aliases lead to no end")]
    Aliases,
    /// The question cannot be written.
    #[error("the name cannot be asked for")]
    Question,
}

/// The message that asks.
///
/// # Errors
/// When the name is none.
pub(crate) fn write(question: &Question, id: u16) -> Result<Vec<u8>, WireError> {
    let name = simple_dns::Name::new(question.name.as_str()).map_err(|_| WireError::Question)?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let kind = QTYPE::TYPE(question.kind.of_dns());
    packet.questions.push(simple_dns::Question::new(name, kind, QCLASS::CLASS(CLASS::IN), false));
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: MAX_DATAGRAM, version: 0 });
    packet.build_bytes_vec().map_err(|_| WireError::Question)
}

/// Reads a message as the answer to a question.
///
/// # Errors
/// When it is none.
pub(crate) fn read(question: &Question, id: u16, message: &[u8]) -> Result<Said, WireError> {
    // Before the rest is looked at: whoever is not asked cannot know the number.
    if message.get(..2) != Some(&id.to_be_bytes()) {
        return Err(WireError::NotOurs);
    }
    let packet = Packet::parse(message).map_err(|_| WireError::Unreadable)?;
    let asked = packet.questions.first();
    let is_ours = asked.is_some_and(|asked| {
        Name::parse(&asked.qname.to_string()).as_ref() == Some(&question.name)
            && asked.qtype == QTYPE::TYPE(question.kind.of_dns())
    });
    // A server that cannot read a question does not repeat it.
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

/// Follows aliases from the name that was asked for, then takes what stands under the last one.
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

/// How long nothing is there: what the zone says of itself, RFC 2308 section 5.
fn negative_ttl(packet: &Packet<'_>) -> Duration {
    let of_zone = packet.name_servers.iter().find_map(|record| match &record.rdata {
        RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
        _ => None,
    });
    of_zone.map_or(NEGATIVE_TTL, |seconds| Duration::from_secs(seconds.into()))
}

/// Whether the zone itself says that something is not there, RFC 2308 section 2.
fn is_denied(packet: &Packet<'_>) -> bool {
    packet.name_servers.iter().any(|record| matches!(record.rdata, RData::SOA(_)))
}

/// Whether the server only knows who might know: one that does not resolve names for others.
fn is_referral(packet: &Packet<'_>) -> bool {
    !is_denied(packet) && packet.name_servers.iter().any(|record| matches!(record.rdata, RData::NS(_)))
}

#[cfg(test)]
mod tests;
