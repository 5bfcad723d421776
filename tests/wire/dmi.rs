//! What real mappers send and answer, recorded: read whole, byte by byte, cut and damaged.

use edged::model::device::{DeviceId, ManagerCall, MapperCall, ReportedTwin};
use edged::wire::dmi;
use edged::wire::grpc::{CallKey, Client, Code, Event, Incoming, Server, Status};
use edged::wire::h2;

use crate::golden::hex;
use crate::mutation::Dice;
use crate::peer::{self, ACK, PING, frame, frames};

/// The reads of one section, in order.
fn recorded(file: &str, name: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/tests/golden/dmi/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut sections = text.split("== ").skip(1);
    let section = sections.find(|section| section.lines().next() == Some(name));
    let reads: Vec<_> = section.expect("it was recorded").lines().skip(1).map(hex).collect();
    assert!(!reads.is_empty());
    reads
}

/// The calls in these reads, each answered with an empty message, and all that was written.
fn serve(parts: &[&[u8]]) -> (Vec<Result<ManagerCall, Status>>, Vec<u8>) {
    let (mut server, mut calls, mut written) = (Server::default(), Vec::new(), Vec::new());
    for part in parts {
        server.receive(part).unwrap();
        while let Some(incoming) = server.poll_incoming() {
            let Incoming::Call(call) = incoming else { panic!("{incoming:?}") };
            assert_eq!(call.timeout_ms.map(|ms| (2_900..=3_000).contains(&ms)), Some(true));
            calls.push(dmi::decode(&call.path, &call.message));
            server.answer(call.stream, Ok(b""));
        }
        written.extend_from_slice(server.output());
        server.sent(server.output().len());
    }
    assert!(server.is_idle());
    (calls, written)
}

fn report(expected: Option<&str>, actual: &str) -> ManagerCall {
    let device = DeviceId::new("default", "dev1");
    let (property, expected) = ("temp".into(), expected.map(Into::into));
    let twins = vec![ReportedTwin { property, expected, actual: Some(actual.into()) }];
    ManagerCall::ReportStatus { device, twins }
}

#[test]
fn real_calls_are_read_however_they_are_split() {
    let device = DeviceId::new("default", "dev1");
    let state = ManagerCall::ReportState { device, state: "online".into() };
    for (name, expected) in [
        ("status", vec![report(Some("20"), "21")]),
        ("state", vec![state.clone()]),
        ("half", vec![report(None, "21")]),
        // The second and third are written with the dynamic table.
        ("many", vec![report(None, "xxxx"); 3]),
        ("idle", vec![state]),
    ] {
        let reads = recorded("calls.txt", name);
        let parts: Vec<&[u8]> = reads.iter().map(Vec::as_slice).collect();
        let (calls, written) = serve(&parts);
        assert_eq!(calls.into_iter().collect::<Result<Vec<_>, _>>(), Ok(expected), "{name}");
        let bytes = reads.concat();
        let one_by_one: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(serve(&one_by_one).1, written, "{name}");
        assert_eq!(serve(&[&bytes]).0.len(), serve(&parts).0.len(), "{name}");
    }
}

#[test]
fn a_real_registration_is_read() {
    let reads = recorded("calls.txt", "register");
    let (calls, _) = serve(&[&reads.concat()]);
    let [Ok(ManagerCall::Register { mapper, with_data: true })] = &calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!((&*mapper.name, &*mapper.protocol), ("m1", "modbus"));
    assert_eq!(&*mapper.address, "/etc/kubeedge/modbus.sock");
}

#[test]
fn every_ping_is_answered() {
    for (name, pings) in [("register", 1), ("idle", 4), ("gzip", 0)] {
        let reads = recorded("calls.txt", name);
        let mut server = Server::default();
        server.receive(&reads.concat()).unwrap();
        let wrote = frames(server.output());
        let acknowledged = wrote.iter().filter(|f| (f.kind, f.flags) == (PING, ACK)).count();
        assert_eq!(acknowledged, pings, "{name}");
        let bytes = reads.concat();
        let sent = bytes.windows(9).filter(|head| *head == [0, 0, 8, PING, 0, 0, 0, 0, 0]).count();
        assert_eq!(sent, pings, "{name}");
    }
}

#[test]
fn what_is_compressed_or_of_another_version_is_refused() {
    let mut server = Server::default();
    server.receive(&recorded("calls.txt", "gzip").concat()).unwrap();
    assert_eq!(server.poll_incoming(), None);
    let text = "message has compressed flag 1, expected 0";
    assert!(server.output().windows(text.len()).any(|part| part == text.as_bytes()));
    let (calls, _) = serve(&[&recorded("calls.txt", "unknown").concat()]);
    let [Err(status)] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(status.code, Code::Unimplemented);
}

#[test]
fn real_answers_end_their_calls() {
    let id = || DeviceId::new("default", "dev1");
    let object = || "{}".into();
    for call in [
        MapperCall::CreateModel(object()),
        MapperCall::UpdateModel(object()),
        MapperCall::RemoveModel(id()),
        MapperCall::RegisterDevice(object(), None),
        MapperCall::UpdateDevice(object(), None),
        MapperCall::RemoveDevice(id()),
    ] {
        let (path, message) = dmi::encode(&call).unwrap();
        let reads = recorded("answers.txt", path.rsplit('/').next().unwrap());
        let bytes = reads.concat();
        for size in [1, 7, bytes.len()] {
            let mut client = Client::new(h2::Config::default());
            client.unary(CallKey(1), path, &message).unwrap();
            for part in bytes.chunks(size) {
                client.receive(part).unwrap();
            }
            let [event] = &peer::events(&mut client)[..] else { panic!("one event") };
            assert!(matches!(event, Event::Reply(..)), "{event:?}");
            assert_eq!(dmi::outcome(event.clone()), Ok(()));
        }
    }
}

#[test]
fn damaged_calls_are_calls_refusals_or_an_error() {
    let names = ["register", "status", "state", "many", "gzip", "idle"];
    let all: Vec<_> = names.iter().map(|name| recorded("calls.txt", name).concat()).collect();
    let mut dice = Dice(23);
    let (mut errors, mut read, mut refused) = (0, 0, 0);
    for round in 0..20_000 {
        let mut bytes = all[round % all.len()].clone();
        dice.damage(&mut bytes);
        let mut server = Server::default();
        let mut failed = false;
        for part in bytes.chunks(1 + dice.roll(200)) {
            failed |= server.receive(part).is_err();
            while let Some(incoming) = server.poll_incoming() {
                let Incoming::Call(call) = incoming else { continue };
                match dmi::decode(&call.path, &call.message) {
                    Ok(_) => {
                        read += 1;
                        server.answer(call.stream, Ok(b""));
                    }
                    Err(status) => {
                        refused += 1;
                        server.answer(call.stream, Err(&status));
                    }
                }
            }
            server.sent(dice.roll(server.output().len() + 1));
        }
        errors += usize::from(failed);
    }
    assert!(errors > 2_000 && errors < 18_000, "{errors} errors");
    assert!(read > 2_000 && refused > 500, "{read} calls, {refused} refusals");
    let ping = frame(PING, 0, 0, &[0; 8]);
    assert!(all[5].windows(ping.len()).any(|part| part == ping), "keep-alive is among them");
}
