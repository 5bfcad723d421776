//! `wire::spdy`: any bytes of a runtime's streaming server, whole and in pieces, bring the same
//! output and the same end.
#![no_main]

use edged::wire::spdy::Violation;
use edged::wire::spdy::exec::{Exec, Outcome, Output, Wanted};
use edged::wire::spdy::forward::{Event, Forward};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = (exec(bytes, bytes.len().max(1)), forward(bytes, bytes.len().max(1)));
    for size in [1, 7] {
        assert_eq!(whole, (exec(bytes, size), forward(bytes, size)));
    }
});

type Ended = (Vec<u8>, Vec<u8>, Outcome, Vec<u8>, Option<Violation>);

fn exec(bytes: &[u8], size: usize) -> Ended {
    let mut exec = Exec::new(Wanted { stdin: true, stdout: true, stderr: true, tty: true });
    let (mut out, mut err, mut error) = (Vec::new(), Vec::new(), None);
    'pieces: for piece in bytes.chunks(size) {
        let mut rest = piece;
        loop {
            match exec.receive(rest) {
                Err(violation) => {
                    error = Some(violation);
                    break 'pieces;
                }
                Ok((taken, output)) => {
                    rest = &rest[taken..];
                    match output {
                        Some(Output::Stdout(bytes)) => out.extend_from_slice(bytes),
                        Some(Output::Stderr(bytes)) => err.extend_from_slice(bytes),
                        None if rest.is_empty() => break,
                        None => assert!(taken > 0),
                    }
                }
            }
        }
    }
    (out, err, exec.outcome(), exec.output().to_vec(), error)
}

fn forward(bytes: &[u8], size: usize) -> (Vec<u8>, Vec<String>, Vec<u8>, Option<Violation>) {
    let mut forward = Forward::default();
    for port in 1..4 {
        forward.open(port);
    }
    let (mut data, mut events, mut error) = (Vec::new(), Vec::new(), None);
    'pieces: for piece in bytes.chunks(size) {
        let mut rest = piece;
        loop {
            match forward.receive(rest) {
                Err(violation) => {
                    error = Some(violation);
                    break 'pieces;
                }
                Ok((taken, event)) => {
                    rest = &rest[taken..];
                    match event {
                        Some(Event::Data(_, bytes)) => data.extend_from_slice(bytes),
                        Some(event) => events.push(format!("{event:?}")),
                        None if rest.is_empty() => break,
                        None => assert!(taken > 0),
                    }
                }
            }
        }
    }
    (data, events, forward.output().to_vec(), error)
}
