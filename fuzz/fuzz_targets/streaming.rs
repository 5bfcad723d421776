//! `wire::streaming`: any bytes of a client of exec, attach and port forwarding, whole and in
//! pieces, mean the same.
#![no_main]

use edged::model::runtime::Pipes;
use edged::wire::streaming::Violation;
use edged::wire::streaming::command::{Command, Ended, Incoming, Output};
use edged::wire::streaming::forward::{Forward, Incoming as Port};
use edged::wire::streaming::upgrade::{Protocol, Purpose, upgrade};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for purpose in [Purpose::Command, Purpose::Forward] {
        if let Ok(Some(granted)) = upgrade(bytes, purpose, |_| String::new()) {
            assert!(granted.head_bytes <= bytes.len());
        }
    }
    for protocol in [Protocol::Spdy(4), Protocol::Spdy(1), Protocol::WebSocket(5)] {
        let size = bytes.len().max(1);
        let whole = (command(bytes, size, protocol), forward(bytes, size, protocol));
        for size in [1, 7] {
            let parts = (command(bytes, size, protocol), forward(bytes, size, protocol));
            assert_eq!(whole, parts, "{protocol:?}");
        }
    }
});

/// What it has meant: input, all else, what is to be sent, and the violation.
type Meant = (Vec<u8>, Vec<String>, Vec<u8>, Option<Violation>);

fn command(bytes: &[u8], size: usize, protocol: Protocol) -> Meant {
    let pipes = Pipes { stdin: true, stdout: true, stderr: false, tty: true };
    let mut command = Command::new(protocol, pipes);
    let (mut input, mut others) = (Vec::new(), Vec::new());
    let receive = |bytes| command.receive(bytes);
    let error = feed(bytes, size, receive, |incoming| match incoming {
        Incoming::Input(bytes) => input.extend_from_slice(&bytes),
        // Of sizes that come at once only the last one counts.
        Incoming::Size { .. } => {}
        other => others.push(format!("{other:?}")),
    });
    command.output(Output::Stdout, b"out");
    command.finish(&Ended::Exited(1));
    (input, others, command.pending().to_vec(), error)
}

fn forward(bytes: &[u8], size: usize, protocol: Protocol) -> Meant {
    let mut forward = Forward::new(protocol, &[80, 81]);
    let (mut input, mut others) = (Vec::new(), Vec::new());
    let receive = |bytes| forward.receive(bytes);
    let error = feed(bytes, size, receive, |incoming| match incoming {
        Port::Data(_, bytes) => input.extend_from_slice(&bytes),
        other => others.push(format!("{other:?}")),
    });
    forward.close(1, Some("why"));
    forward.finish();
    (input, others, forward.pending().to_vec(), error)
}

/// Hands the bytes over in pieces of this size; what they complete goes to `take`. Returns the
/// violation that has ended it.
fn feed<'a, I>(
    bytes: &'a [u8],
    size: usize,
    mut receive: impl FnMut(&'a [u8]) -> Result<(usize, Option<I>), Violation>,
    mut take: impl FnMut(I),
) -> Option<Violation> {
    for mut rest in bytes.chunks(size) {
        loop {
            let (taken, incoming) = match receive(rest) {
                Ok(received) => received,
                Err(violation) => return Some(violation),
            };
            rest = &rest[taken..];
            match incoming {
                Some(incoming) => take(incoming),
                None if rest.is_empty() => break,
                None => assert!(taken > 0),
            }
        }
    }
    None
}
