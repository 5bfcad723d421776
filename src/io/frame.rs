//! One message between the agent and one of its children: its length, and postcard's bytes. Both
//! ends are this program, so there is no version; the reader waits, because a frame is whole or the
//! other end is gone.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use crate::limits::JOB_FRAME_BYTES_MAX;
use crate::model::error::{Error, Peer, System};

pub(super) fn send<T: Serialize>(to: &mut UnixStream, message: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if bytes.len() > JOB_FRAME_BYTES_MAX {
        return Err(io::Error::other(format!(
            "got a message of {} bytes, expected {JOB_FRAME_BYTES_MAX} at most",
            bytes.len()
        )));
    }
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(&bytes)
}

pub(super) fn receive<T: for<'de> Deserialize<'de>>(from: &mut UnixStream) -> Result<T, Error> {
    let failed = |error: io::Error| match error.kind() {
        // Reset: the child did not even read its request.
        ErrorKind::UnexpectedEof | ErrorKind::WouldBlock | ErrorKind::ConnectionReset => {
            System::new("it sent nothing")
        }
        _ => error.into(),
    };
    let mut length = [0; 4];
    from.read_exact(&mut length).map_err(failed)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > JOB_FRAME_BYTES_MAX {
        let why = format!("got {length} bytes announced, expected {JOB_FRAME_BYTES_MAX} at most");
        return Err(Peer::new(why).into());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).map_err(failed)?;
    postcard::from_bytes(&bytes).map_err(|error| Peer::at("not readable", error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_bound_for_both_ends() {
        // As many bytes as the text, plus two for its length.
        let message = |bytes: usize| "x".repeat(bytes - 2);
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        send(&mut ours, &message(JOB_FRAME_BYTES_MAX)).expect("as long as may be");
        assert_eq!(receive(&mut theirs), Ok(message(JOB_FRAME_BYTES_MAX)));
        let bytes = JOB_FRAME_BYTES_MAX + 1;
        let refused = send(&mut ours, &message(bytes)).expect_err("one byte more");
        let expected = format!("got a message of {bytes} bytes, expected {JOB_FRAME_BYTES_MAX} at");
        assert!(refused.to_string().starts_with(&expected), "{refused}");
        // A message that is announced as too long is not awaited.
        ours.write_all(&(bytes as u32).to_le_bytes()).expect("there is room");
        let refused = receive::<String>(&mut theirs).expect_err("one byte more").to_string();
        assert!(refused.starts_with(&format!("got {bytes} bytes announced")), "{refused}");
    }
}
