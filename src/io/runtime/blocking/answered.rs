//! What a runtime answers is what the caller gets.

use super::*;
use crate::wire::rpc::{Code, Status};
use crate::wire::ttrpc::{self, Server, StreamId};

/// The answer waits in the socket before the call is made.
fn exchanged(answer: fn(&mut Server)) -> Result<Vec<u8>, String> {
    const MESSAGE: &[u8] = b"\x0a\x0d/images/a.tar";
    let mut request = Line::new(Framing::Ttrpc);
    request.call(CallKey(1), Rpc::Import, 7_000, MESSAGE).expect("it takes calls");
    let mut server = Server::default();
    server.receive(request.output()).expect("a good request");
    let Some(ttrpc::Event::Call(call)) = server.poll_event() else { panic!("a call") };
    assert_eq!(call.timeout, Some(Duration::from_secs(7)));
    answer(&mut server);
    let (ours, mut peer) = UnixStream::pair().expect("two ends");
    peer.write_all(server.output()).expect("there is room");
    peer.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut client = Client::over(ours, Framing::Ttrpc);
    let result = client.exchange(Rpc::Import, MESSAGE, 7_000, &mut |_| {});
    let mut sent = vec![0; request.output().len()];
    peer.read_exact(&mut sent).expect("the request");
    assert_eq!(sent, request.output());
    result.map_err(|error| error.to_string())
}

#[test]
fn a_reply_or_the_reason_comes_from_the_runtime() {
    let good = exchanged(|server| server.answer(StreamId(1), b"\x0a\x03a:1\x0a\x03b:2"));
    assert_eq!(good, Ok(b"\x0a\x03a:1\x0a\x03b:2".to_vec()));
    let bad = exchanged(|server| {
        let message = "no image in it".to_owned();
        server.refuse(StreamId(1), &Status { code: Code::InvalidArgument, message });
    });
    assert_eq!(bad, Err("no image in it".to_owned()));
    let why = "it closed the connection without an answer";
    assert_eq!(exchanged(|_| {}), Err(why.to_owned()));
}
