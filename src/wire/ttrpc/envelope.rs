//! The messages `Request` and `Response` around those of a service (`request.proto`).

use crate::wire::protobuf::{Malformed, Writer, fields};
use crate::wire::rpc::{Code, Status, cut};

/// `Request { service = 1; method = 2; payload = 3; timeout_nano = 4 }`; its metadata, field 5, is
/// not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) service: String,
    pub(super) method: String,
    pub(super) payload: Vec<u8>,
    /// 0: none.
    pub(super) timeout_ns: i64,
}

pub(super) fn request(service: &str, method: &str, payload: &[u8], timeout_ns: i64) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.text(1, service);
    writer.text(2, method);
    writer.bytes(3, payload);
    writer.signed(4, timeout_ns);
    writer.into_bytes()
}

pub(super) fn read_request(bytes: &[u8]) -> Result<Request, Malformed> {
    let mut request = Request::default();
    for field in fields(bytes) {
        match field? {
            (1, value) => value.text()?.clone_into(&mut request.service),
            (2, value) => value.text()?.clone_into(&mut request.method),
            (3, value) => request.payload = value.bytes()?.to_vec(),
            (4, value) => request.timeout_ns = value.signed()?,
            _ => {}
        }
    }
    Ok(request)
}

/// `Response { status = 1 google.rpc.Status { code = 1; message = 2 }; payload = 2 }`
pub(super) fn response(result: Result<&[u8], &Status>) -> Vec<u8> {
    let mut writer = Writer::default();
    match result {
        Ok(payload) => writer.bytes(2, payload),
        Err(status) => writer.message(1, &mut |inside| {
            inside.number(1, status.code as u64);
            inside.text(2, &status.message);
        }),
    }
    writer.into_bytes()
}

/// The payload, or the status if it is not OK.
pub(super) fn read_response(bytes: &[u8]) -> Result<Result<Vec<u8>, Status>, Malformed> {
    let (mut payload, mut code, mut message) = (&b""[..], 0, "");
    for field in fields(bytes) {
        match field? {
            (1, status) => {
                for field in fields(status.bytes()?) {
                    match field? {
                        (1, value) => code = value.number()?,
                        (2, value) => message = value.text()?,
                        _ => {}
                    }
                }
            }
            (2, value) => payload = value.bytes()?,
            _ => {}
        }
    }
    Ok(match u32::try_from(code).ok().and_then(Code::from_u32) {
        Some(Code::Ok) => Ok(payload.to_vec()),
        Some(code) => Err(Status::new(code, cut(message.to_owned()))),
        None => {
            let text = format!("status has code {}, expected 0 to 16: {message}", code as i64);
            Err(Status::new(Code::Unknown, cut(text)))
        }
    })
}

/// The request of `Calls/Cancel`.
pub(super) fn cancel(stream: u32) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.number(1, stream.into());
    writer.into_bytes()
}

pub(super) fn read_cancel(bytes: &[u8]) -> Result<u32, Malformed> {
    let mut stream = 0;
    for field in fields(bytes) {
        if let (1, value) = field? {
            stream = value.number()?;
        }
    }
    u32::try_from(stream).map_err(|_| Malformed(format!("got stream {stream}, expected 32 bits")))
}
