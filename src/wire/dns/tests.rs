//! Queries of real clients, answers, and hostile bytes.

use super::*;
use crate::limits::{DNS_TCP_BYTES_MAX, DNS_TTL_S};

/// As `dig` sends it, with another id: recursion, one question, perhaps EDNS.
fn query(name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, RD, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    put_labels(name, &mut bytes);
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(IN.to_be_bytes());
    if let Some(size) = edns {
        bytes.extend([0, 0, 41]);
        bytes.extend(size.to_be_bytes());
        bytes.extend([0; 6]);
    }
    bytes
}

fn record(name: &str, data: Data) -> Record {
    Record { name: name.into(), ttl_s: DNS_TTL_S, data }
}

fn of(answers: Vec<Record>) -> Answer {
    Answer { authoritative: true, answers, ..Answer::default() }
}

fn refused(bytes: &[u8]) -> Vec<u8> {
    match parse(bytes) {
        Err(Refusal::Answer(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_question_is_read_in_lower_case_and_answered_as_it_was_written() {
    let bytes = query("wEb.Ns.svc.Cluster.local", kind::A, None);
    let read = parse(&bytes).expect("a query");
    assert_eq!(*read.question.name, *"web.ns.svc.cluster.local");
    assert_eq!((read.id, read.question.kind, read.udp_bytes_max()), (0x1234, kind::A, 512));
    let ip = Ipv4Addr::new(10, 96, 0, 7);
    let answer = read.answer(&of(vec![record("web.ns.svc.cluster.local", Data::A(ip))]), 512);
    let mut expected = vec![0x12, 0x34, QR | AA | RD, RA, 0, 1, 0, 1, 0, 0, 0, 0];
    expected.extend_from_slice(&bytes[HEADER..]);
    // The name is a pointer to the question: type A, class IN, five seconds, four bytes.
    expected.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 0, 7]);
    assert_eq!(answer, expected);
    assert!(read.is_answered_by(0x1234, &answer) && !read.is_answered_by(0x1235, &answer));
    let mut other = answer.clone();
    other[13] = b'x';
    assert!(!read.is_answered_by(0x1234, &other));
    assert_eq!(records(&answer).expect("ours").1[0].data, Data::A(ip));
}

#[test]
fn each_kind_of_record_is_written() {
    let bytes = query("_h._tcp.set.ns.svc.cluster.local", kind::SRV, Some(4_096));
    let read = parse(&bytes).expect("a query");
    assert_eq!(read.udp_bytes_max(), DNS_UDP_BYTES_MAX);
    let target: Box<str> = "a.set.ns.svc.cluster.local".into();
    let mut answer = of(vec![
        record(&read.question.name, Data::Srv { port: 8_080, target: target.clone() }),
        record(&read.question.name, Data::Cname("set.ns.svc.cluster.local".into())),
        record(&read.question.name, Data::Ptr("other.example".into())),
        record(&read.question.name, Data::Aaaa(Ipv6Addr::LOCALHOST)),
    ]);
    answer.authority.push(record("cluster.local", Data::Soa { minimum_s: DNS_TTL_S }));
    answer.additional.push(record(&target, Data::A(Ipv4Addr::LOCALHOST)));
    let bytes = read.answer(&answer, read.udp_bytes_max());
    assert_eq!(bytes[4..HEADER], [0, 1, 0, 4, 0, 1, 0, 2], "and EDNS");
    let (rcode, found) = records(&bytes).expect("it can be read");
    let expected =
        [Data::Cname("set.ns.svc.cluster.local".into()), Data::Aaaa(Ipv6Addr::LOCALHOST)];
    assert_eq!(rcode, Rcode::NoError);
    assert_eq!(found.into_iter().map(|it| it.data).collect::<Vec<_>>(), expected);
    // The SRV's target is written in full: priority, weight, port, name.
    let mut srv = vec![0, 0, 0, 0, 0x1f, 0x90];
    put_labels(&target, &mut srv);
    srv.push(0);
    assert!(bytes.windows(srv.len()).any(|it| it == srv));
}

#[test]
fn an_answer_that_is_too_long_says_so() {
    let name = "set.ns.svc.cluster.local";
    let many = |count: u8| {
        let a = |n| record(name, Data::A(Ipv4Addr::new(10, 88, 0, n)));
        of((0..count).map(a).collect())
    };
    for (edns, bytes_max, fit) in [(None, DNS_UDP_BYTES, 29), (Some(1_232), 1_232, 73)] {
        let read = parse(&query(name, kind::A, edns)).expect("a query");
        let whole = read.answer(&many(fit), read.udp_bytes_max());
        assert!(whole.len() <= bytes_max && !is_truncated(&whole), "{} bytes", whole.len());
        let cut = read.answer(&many(fit + 1), read.udp_bytes_max());
        assert!(cut.len() <= bytes_max && is_truncated(&cut), "{} bytes", cut.len());
        assert_eq!(records(&cut).expect("what fits").1.len(), usize::from(fit).min(64));
        let over_tcp = read.answer(&many(fit + 1), DNS_TCP_BYTES_MAX);
        assert!(!is_truncated(&over_tcp));
    }
    // Additional records are left out without a word.
    let read = parse(&query(name, kind::A, None)).expect("a query");
    let mut answer = many(1);
    answer.additional = many(40).answers;
    let bytes = read.answer(&answer, 512);
    assert!(!is_truncated(&bytes) && bytes.len() <= 512);
}

#[test]
fn what_is_no_query_is_dropped_or_refused() {
    let good = query("a.b", kind::A, None);
    assert_eq!(parse(&good[..HEADER - 1]), Err(Refusal::Drop));
    let mut answer = good.clone();
    answer[2] |= QR;
    assert_eq!(parse(&answer), Err(Refusal::Drop), "or two servers would talk for ever");
    let mut update = good.clone();
    update[2] |= 5 << 3;
    assert_eq!(refused(&update)[3] & 15, Rcode::NotImp as u8);
    for count in [0, 2] {
        let mut several = good.clone();
        several[5] = count;
        let answer = refused(&several);
        assert_eq!((answer[3] & 15, answer.len()), (Rcode::FormErr as u8, HEADER));
    }
    let mut chaos = good.clone();
    let end = chaos.len();
    chaos[end - 1] = 3;
    let answer = refused(&chaos);
    assert_eq!((answer[3] & 15, answer[5], answer.len()), (Rcode::Refused as u8, 1, end));
    let mut version = query("a.b", kind::A, Some(1_232));
    let at = version.len() - 5;
    version[at] = 1;
    let answer = refused(&version);
    assert_eq!(answer[answer.len() - 6], BAD_VERSION, "BADVERS, in the OPT record");
    let twice = [query("a.b", kind::A, Some(1_232)), vec![0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 0]];
    let mut twice = twice.concat();
    twice[11] = 2;
    assert_eq!(refused(&twice)[3] & 15, Rcode::FormErr as u8);
}

#[test]
fn names_have_bounds() {
    let long = vec!["a".repeat(63); 3].join(".");
    let fits = query(&format!("{long}.{}", "b".repeat(61)), kind::A, None);
    assert!(parse(&fits).is_ok(), "255 bytes");
    let over = query(&format!("{long}.{}", "b".repeat(62)), kind::A, None);
    assert_eq!(refused(&over)[3] & 15, Rcode::FormErr as u8);
    // A label that is no text is no part of a name of ours.
    let odd = parse(&query("a b.ä.local", kind::A, None)).expect("a query");
    assert_eq!(*odd.question.name, *"a?b.??.local");
    let mut dot = query("a-b.local", kind::A, None);
    dot[14] = b'.';
    assert_eq!(*parse(&dot).expect("a query").question.name, *"a?b.local");
    // The root.
    let root = parse(&query("", kind::A, None)).expect("a query");
    assert_eq!(*root.question.name, *"");
    assert!(root.answer(&Answer::default(), 512).len() == HEADER + 5);
    // A pointer in the question, to itself, forwards, and a chain that is too long.
    for to in [12, 20, 4] {
        let mut pointer = query("", kind::A, None);
        pointer.splice(HEADER..=HEADER, [0xc0, to]);
        assert_eq!(refused(&pointer)[3] & 15, Rcode::FormErr as u8, "{to}");
    }
    let chain = |pointers: usize| {
        let mut bytes = vec![0; HEADER];
        bytes.extend([1, b'a', 0]);
        for n in 0..pointers {
            let to = if n == 0 { HEADER } else { HEADER + 3 + 2 * (n - 1) } as u16 | 0xc000;
            bytes.extend(to.to_be_bytes());
        }
        let last = bytes.len() - 2;
        name(&bytes, last).map(|(name, _)| name)
    };
    assert_eq!(chain(DNS_POINTERS_MAX).as_deref(), Some("a"));
    assert_eq!(chain(DNS_POINTERS_MAX + 1), None);
}

#[test]
fn a_query_of_our_own_is_one_that_others_can_read() {
    let mut own = OwnQuery::new(7, "db.example.org", kind::AAAA);
    let read = parse(&own.bytes).expect("a query");
    assert_eq!((&*read.question.name, read.question.kind), ("db.example.org", kind::AAAA));
    set_id(&mut own.bytes, 0x0102);
    let read = parse(&own.bytes).expect("a query");
    let answer =
        read.answer(&of(vec![record("db.example.org", Data::Aaaa(Ipv6Addr::LOCALHOST))]), 512);
    assert!(own.is_answered_by(0x0102, &answer) && !own.is_answered_by(0x0103, &answer));
    assert!(!own.is_answered_by(0x0102, &own.bytes), "it is no answer");
}

#[test]
fn of_another_servers_answer_a_bounded_number_of_records_is_read() {
    let read = parse(&query("a.b", kind::A, None)).expect("a query");
    let all = (0..=DNS_RECORDS_MAX).map(|n| record("a.b", Data::A([10, 0, 0, n as u8].into())));
    let bytes = read.answer(&of(all.collect()), 65_000);
    assert_eq!(records(&bytes).expect("ours").1.len(), DNS_RECORDS_MAX);
    let mut failed = bytes.clone();
    failed[3] = RA | 3;
    assert_eq!(records(&failed).expect("ours").0, Rcode::NxDomain);
    failed[3] = RA | 5;
    assert_eq!(records(&failed).expect("ours").0, Rcode::ServFail);
}

#[test]
fn cut_and_spoilt_messages_are_refused_without_a_panic() {
    let whole = query("web.ns.svc.cluster.local", kind::A, Some(1_232));
    let read = parse(&whole).expect("a query");
    let answer = read.answer(
        &of(vec![
            record("web.ns.svc.cluster.local", Data::Cname("x.example".into())),
            record("x.example", Data::A(Ipv4Addr::LOCALHOST)),
        ]),
        512,
    );
    for end in 0..whole.len() {
        assert!(parse(&whole[..end]).is_err(), "{end}");
    }
    for end in 0..answer.len() {
        let _ = records(&answer[..end]);
    }
    for at in 0..answer.len() {
        for byte in [0x00, 0x3f, 0xc0, 0xff] {
            let mut spoilt = answer.clone();
            spoilt[at] = byte;
            let _ = records(&spoilt);
            let _ = is_truncated(&spoilt);
            if at < whole.len() {
                let mut spoilt = whole.clone();
                spoilt[at] = byte;
                if let Ok(query) = parse(&spoilt) {
                    assert!(query.answer(&of(Vec::new()), 512).len() <= 512);
                }
            }
        }
    }
}
