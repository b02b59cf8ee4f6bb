use super::*;
use proptest::prelude::*;
use simple_dns::rdata::{A, AAAA, CNAME, NS, SOA, SRV};

const ID: u16 = 7;

fn question(name: &str, kind: Kind) -> Question {
    Question { name: Name::parse(name).expect("a name"), kind }
}

fn name(text: &str) -> simple_dns::Name<'_> {
    simple_dns::Name::new(text).expect("a name")
}

fn record<'a>(of: &'a str, ttl: u32, rdata: RData<'a>) -> ResourceRecord<'a> {
    ResourceRecord::new(name(of), CLASS::IN, ttl, rdata)
}

fn a<'a>(of: &'a str, ttl: u32, last: u8) -> ResourceRecord<'a> {
    record(of, ttl, RData::A(A { address: u32::from_be_bytes([10, 0, 0, last]) }))
}

fn srv<'a>(of: &'a str, numbers: (u16, u16, u16), target: &'a str) -> ResourceRecord<'a> {
    let (priority, weight, port) = numbers;
    record(of, 60, RData::SRV(SRV { priority, weight, port, target: name(target) }))
}

fn soa(ttl: u32, minimum: u32) -> ResourceRecord<'static> {
    let (mname, rname) = (name("ns.example.com"), name("h.example.com"));
    let soa = SOA { mname, rname, serial: 1, refresh: 1, retry: 1, expire: 1, minimum };
    record("example.com", ttl, RData::SOA(soa))
}

/// The answer of a server.
fn answer<'a>(
    question: &'a Question,
    answers: Vec<ResourceRecord<'a>>,
    authority: Vec<ResourceRecord<'a>>,
) -> Packet<'a> {
    let mut packet = Packet::new_reply(ID);
    let kind = QTYPE::TYPE(question.kind.of_dns());
    let asked =
        simple_dns::Question::new(name(question.name.as_str()), kind, QCLASS::CLASS(CLASS::IN), false);
    packet.questions.push(asked);
    packet.answers = answers;
    packet.name_servers = authority;
    packet
}

fn read_packet(question: &Question, packet: &Packet<'_>) -> Result<Said, WireError> {
    read(question, ID, &packet.build_bytes_vec().expect("it can be written"))
}

fn addresses(last: &[u8]) -> Records {
    Records::Addresses(last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_question_is_written_with_recursion_and_its_size() {
    let written = write(&question("Web.example.com", Kind::Srv), 0x0102).expect("it can be written");
    let packet = Packet::parse(&written).expect("it is a message");
    assert_eq!((packet.id(), packet.questions.len()), (0x0102, 1));
    assert!(packet.has_flags(PacketFlag::RECURSION_DESIRED) && !packet.has_flags(PacketFlag::RESPONSE));
    assert_eq!(packet.questions[0].qname.to_string(), "web.example.com");
    assert_eq!(packet.opt().map(|opt| opt.udp_packet_size), Some(1232));
}

#[test]
fn addresses_have_the_shortest_of_their_times() {
    let asked = question("web.example.com", Kind::A);
    let packet = answer(
        &asked,
        vec![a("web.example.com", 60, 2), a("WEB.example.com", 5, 1), a("other.example.com", 1, 9)],
        vec![],
    );
    assert_eq!(read_packet(&asked, &packet), Ok(Said::Records(addresses(&[1, 2]), seconds(5))));

    let asked = question("web.example.com", Kind::Aaaa);
    let packet = answer(&asked, vec![record("web.example.com", 9, RData::AAAA(AAAA { address: 1 }))], vec![]);
    let expected = Records::Addresses(vec!["::1".parse().expect("an IP")]);
    assert_eq!(read_packet(&asked, &packet), Ok(Said::Records(expected, seconds(9))));
}

#[test]
fn services_are_sorted_and_those_that_are_none_left_out() {
    let asked = question("_http._tcp.web.example.com", Kind::Srv);
    let of = "_http._tcp.web.example.com";
    let records = vec![
        srv(of, (20, 5, 80), "b.example.com"),
        srv(of, (10, 0, 80), "A.example.com"),
        srv(of, (0, 0, 0), "c.example.com"),
    ];
    let Ok(Said::Records(Records::Srv(found), _)) = read_packet(&asked, &answer(&asked, records, vec![]))
    else {
        panic!("services");
    };
    let found: Vec<_> =
        found.iter().map(|srv| (srv.priority, srv.weight, srv.port, srv.target.as_str())).collect();
    assert_eq!(found, [(10, 0, 80, "a.example.com"), (20, 5, 80, "b.example.com")]);
}

#[test]
fn nothing_is_there_for_as_long_as_the_zone_says() {
    let asked = question("web.example.com", Kind::A);
    for (is_nxdomain, authority, expected) in [
        (true, vec![soa(60, 5)], 5),
        (true, vec![soa(3, 5)], 3),
        (false, vec![soa(60, 5)], 5),
        // The server does not say.
        (true, vec![], 30),
        (false, vec![], 30),
    ] {
        let mut packet = answer(&asked, vec![], authority);
        if is_nxdomain {
            *packet.rcode_mut() = RCODE::NameError;
        }
        assert_eq!(
            read_packet(&asked, &packet),
            Ok(Said::Records(addresses(&[]), seconds(expected))),
            "{is_nxdomain}"
        );
    }
}

#[test]
fn a_failure_is_not_nothing() {
    let asked = question("web.example.com", Kind::A);
    for (code, expected) in [
        (RCODE::ServerFailure, "the server answered SERVFAIL"),
        (RCODE::Refused, "the server answered REFUSED"),
        (RCODE::FormatError, "the server answered FORMERR"),
        (RCODE::NotImplemented, "the server answered NOTIMP"),
        (RCODE::NOTAUTH, "the server answered an error"),
    ] {
        let mut packet = answer(&asked, vec![], vec![]);
        *packet.rcode_mut() = code;
        assert_eq!(read_packet(&asked, &packet).map_err(|error| error.to_string()), Err(expected.to_owned()));
    }
    let referral = vec![record("example.com", 60, RData::NS(NS(name("ns.example.net"))))];
    let said = read_packet(&asked, &answer(&asked, vec![], referral));
    assert!(matches!(said, Err(WireError::Failure(_))), "{said:?}");
}

#[test]
fn aliases_are_followed_within_the_answer_and_named_beyond_it() {
    let asked = question("web.example.com", Kind::A);
    let alias = |of: &'static str, ttl, to: &'static str| record(of, ttl, RData::CNAME(CNAME(name(to))));
    let packet = answer(
        &asked,
        vec![
            alias("web.example.com", 9, "x.example.com"),
            alias("x.example.com", 60, "y.example.com"),
            a("y.example.com", 30, 1),
        ],
        vec![],
    );
    assert_eq!(read_packet(&asked, &packet), Ok(Said::Records(addresses(&[1]), seconds(9))));
    let packet = answer(&asked, vec![alias("web.example.com", 9, "x.example.net")], vec![]);
    let beyond = Name::parse("x.example.net").expect("a name");
    assert_eq!(read_packet(&asked, &packet), Ok(Said::Alias(beyond, seconds(9))));
    let packet = answer(&asked, vec![alias("web.example.com", 9, "x.example.com")], vec![soa(60, 60)]);
    assert_eq!(
        read_packet(&asked, &packet),
        Ok(Said::Records(addresses(&[]), seconds(9))),
        "the alias leads to nothing"
    );
    let packet = answer(
        &asked,
        vec![alias("web.example.com", 9, "x.example.com"), alias("x.example.com", 9, "web.example.com")],
        vec![],
    );
    assert_eq!(read_packet(&asked, &packet), Err(WireError::Aliases));
}

#[test]
fn what_does_not_fit_a_datagram_is_told() {
    let asked = question("web.example.com", Kind::A);
    let mut packet = answer(&asked, vec![a("web.example.com", 1, 1)], vec![]);
    packet.set_flags(PacketFlag::TRUNCATION);
    assert_eq!(read_packet(&asked, &packet), Ok(Said::Truncated));
}

#[test]
fn answers_to_others_are_not_ours() {
    let asked = question("web.example.com", Kind::A);
    let bytes = |packet: &Packet<'_>| packet.build_bytes_vec().expect("it can be written");
    let good = answer(&asked, vec![a("web.example.com", 1, 1)], vec![]);
    assert!(read(&asked, ID, &bytes(&good)).is_ok());
    assert_eq!(read(&asked, ID + 1, &bytes(&good)), Err(WireError::NotOurs));
    for other in [question("other.example.com", Kind::A), question("web.example.com", Kind::Aaaa)] {
        assert_eq!(read(&asked, ID, &bytes(&answer(&other, vec![], vec![]))), Err(WireError::NotOurs));
    }
    let own = write(&asked, ID).expect("it can be written");
    assert_eq!(read(&asked, ID, &own), Err(WireError::NotOurs), "a question is no answer");
}

#[test]
fn a_message_that_is_cut_is_none() {
    let asked = question("web.example.com", Kind::A);
    let bytes = answer(&asked, vec![a("web.example.com", 1, 1), a("web.example.com", 1, 2)], vec![soa(1, 1)])
        .build_bytes_vec()
        .expect("it can be written");
    for end in 0..bytes.len() {
        assert!(read(&asked, ID, &bytes[..end]).is_err(), "cut after {end}");
    }
}

proptest! {
    #[test]
    fn no_message_panics(mut message in prop::collection::vec(any::<u8>(), 0..600), is_ours in any::<bool>()) {
        if is_ours && message.len() > 2 {
            message[..2].copy_from_slice(&ID.to_be_bytes());
        }
        let _ = read(&question("web.example.com", Kind::Srv), ID, &message);
    }

    #[test]
    fn no_garbled_answer_panics(at in 0usize..200, to in any::<u8>()) {
        let asked = question("_http._tcp.web.example.com", Kind::Srv);
        let of = "_http._tcp.web.example.com";
        let packet = answer(&asked, vec![srv(of, (1, 2, 3), "a.example.com"), srv(of, (1, 2, 3), "b.example.com")], vec![soa(1, 1)]);
        let mut bytes = packet.build_bytes_vec_compressed().expect("it can be written");
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = read(&asked, ID, &bytes);
    }
}
