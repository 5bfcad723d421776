//! The captures of real servers, replayed through the whole client: the same statuses, texts and
//! messages must come out, however the bytes are split and wherever they end.

use edged::wire::grpc::{CallKey, Client, Code, Event, Status};
use edged::wire::h2;

use crate::golden::{self, Frame};
use crate::peer::{self, events, frames, written};

/// A capture of one connection, and its expected result.
pub struct Exchange {
    pub name: String,
    pub config: h2::Config,
    /// All bytes of the server.
    pub bytes: Vec<u8>,
    /// Streams that the capture's client opened; its call has the stream's number as its key.
    pub streams: Vec<u32>,
    /// The cancelled streams.
    pub cancelled: Vec<u32>,
    pub expected: Vec<Event>,
}

impl Exchange {
    fn new(name: &str, table_bytes: u32, frames: &[Frame]) -> Exchange {
        let last = frames.iter().map(|frame| frame.stream).max().unwrap();
        let config = h2::Config { header_table_bytes: table_bytes, ..h2::Config::default() };
        Exchange {
            name: name.to_owned(),
            config,
            bytes: frames.iter().flat_map(Frame::bytes).collect(),
            streams: (1..=last).step_by(2).collect(),
            cancelled: Vec::new(),
            expected: expected(frames),
        }
    }

    /// A client that has made the capture's calls.
    pub fn client(&self) -> Client {
        let mut client = Client::new(self.config);
        for &stream in &self.streams {
            let (key, path) = (CallKey(stream.into()), "/runtime.v1.RuntimeService/Version");
            client.unary(key, path, b"\x0a\x02v1").unwrap();
        }
        written(&mut client);
        for &stream in &self.cancelled {
            client.cancel(CallKey(stream.into()));
        }
        written(&mut client);
        client
    }
}

/// All captures. In those with one connection, stream 25 was cancelled by the client.
pub fn exchanges() -> Vec<Exchange> {
    let mut all = Vec::new();
    for file in golden::CONNECTIONS {
        let frames = golden::frames(&golden::text(file));
        all.push(Exchange { cancelled: vec![25], ..Exchange::new(file, 0, &frames) });
    }
    for file in golden::SECTIONS {
        for (table_bytes, section) in [(4096, "A"), (0, "F"), (4096, "J"), (0, "L")] {
            let frames = golden::frames(&golden::section(file, section));
            all.push(Exchange::new(&format!("{file} {section}"), table_bytes, &frames));
        }
    }
    all
}

/// The results of each stream in the capture's own text, in the order in which they ended.
fn expected(frames: &[Frame]) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    for frame in frames {
        let key = CallKey(frame.stream.into());
        if out.iter().any(|event| event.key() == key) {
            continue;
        }
        if frame.kind == peer::RST_STREAM {
            let message = "server reset the stream: PROTOCOL_ERROR".to_owned();
            out.push(Event::Failed(key, Status { code: Code::Internal, message }));
        } else if frame.kind == peer::HEADERS && frame.flags & peer::END_STREAM != 0 {
            out.push(outcome(key, frame, frames));
        }
    }
    out
}

fn outcome(key: CallKey, last: &Frame, frames: &[Frame]) -> Event {
    let field = |name: &str| {
        last.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone()).unwrap()
    };
    let code = Code::from_u32(field("grpc-status").parse().unwrap()).unwrap();
    if code == Code::Ok {
        let data = frames.iter().find(|f| f.stream == last.stream && f.kind == peer::DATA);
        return Event::Reply(key, data.unwrap().payload[5..].to_vec());
    }
    // The few escapes that the captures have.
    let decode = [("%C3%A9", "é"), ("%25", "%"), ("%C2%A0", "\u{a0}")];
    let message =
        decode.iter().fold(field("grpc-message"), |text, (from, to)| text.replace(from, to));
    Event::Failed(key, Status { code, message })
}

#[test]
fn real_servers_are_understood() {
    let (mut replies, mut failures) = (0, 0);
    for exchange in exchanges() {
        let mut client = exchange.client();
        client.receive(&exchange.bytes).unwrap();
        let got = events(&mut client);
        assert_eq!(got, exchange.expected, "{}", exchange.name);
        replies += got.iter().filter(|event| matches!(event, Event::Reply(..))).count();
        failures += got.iter().filter(|event| matches!(event, Event::Failed(..))).count();
    }
    assert!(replies >= 26 && failures >= 20, "{replies} replies, {failures} failures");
}

/// The texts of the statuses, once in readable form.
#[test]
fn texts_are_percent_decoded() {
    let exchange = exchanges().remove(0);
    let text = "failed to parse image reference \"bad nameé%\\n\": invalid reference format";
    let status = Status { code: Code::Unknown, message: text.to_owned() };
    assert!(exchange.expected.contains(&Event::Failed(CallKey(9), status)));
}

#[test]
fn every_cut_gives_only_whole_events_and_then_the_same() {
    for exchange in exchanges() {
        for cut in 0..=exchange.bytes.len() {
            let (first, second) = exchange.bytes.split_at(cut);
            let mut client = exchange.client();
            client.receive(first).unwrap();
            let mut got = events(&mut client);
            assert!(exchange.expected.starts_with(&got), "{} cut at {cut}", exchange.name);
            client.receive(second).unwrap();
            got.extend(events(&mut client));
            assert_eq!(got, exchange.expected, "{} cut at {cut}", exchange.name);
        }
    }
}

#[test]
fn byte_by_byte_is_the_same() {
    for exchange in exchanges() {
        let mut client = exchange.client();
        let mut got = Vec::new();
        for byte in &exchange.bytes {
            client.receive(std::slice::from_ref(byte)).unwrap();
            got.extend(events(&mut client));
        }
        assert_eq!(got, exchange.expected, "{}", exchange.name);
    }
}

/// Real servers get an ACK for their SETTINGS and an answer to their bandwidth probe.
#[test]
fn settings_and_pings_of_real_servers_are_answered() {
    for exchange in exchanges() {
        let mut client = exchange.client();
        client.receive(&exchange.bytes).unwrap();
        let wrote = written(&mut client);
        let from_server = frames(&exchange.bytes);
        let count = |frames: &[peer::Frame], kind, flags| {
            frames.iter().filter(|frame| (frame.kind, frame.flags) == (kind, flags)).count()
        };
        for kind in [peer::SETTINGS, peer::PING] {
            assert_eq!(count(&wrote, kind, peer::ACK), count(&from_server, kind, 0));
            assert_eq!(count(&wrote, kind, 0), 0);
        }
        let probe = wrote.iter().find(|frame| frame.kind == peer::PING).unwrap();
        assert_eq!(probe.payload, golden::hex("02041010090e0707"));
    }
}

/// The request that real servers have answered, byte for byte except our user agent and our
/// SETTINGS.
#[test]
fn a_request_is_the_one_that_servers_accept() {
    let section = golden::section(golden::CONNECTIONS[0], "1");
    let (_, line) = section.split_once("client bytes: ").unwrap();
    let theirs = frames(&golden::hex(line.lines().next().unwrap()));
    let mut client = Client::new(h2::Config::default());
    client.unary(CallKey(0), "/runtime.v1.RuntimeService/Version", b"\x0a\x02v1").unwrap();
    assert!(client.output().starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    let ours = written(&mut client);
    let kinds = |frames: &[peer::Frame]| {
        frames.iter().map(|frame| (frame.kind, frame.flags, frame.stream)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&ours), kinds(&theirs));
    let user_agent = peer::block(&[("user-agent", "edged")]);
    assert_eq!(ours[2].payload.strip_suffix(&user_agent[..]), Some(&theirs[2].payload[..]));
    assert_eq!(ours[3].payload, theirs[3].payload);
    let settings = golden::hex("000100000000 000200000000 000400100000 00060003c000");
    assert_eq!(ours[0].payload, settings);
}
