//! `ListPodSandboxResponse` and `ListContainersResponse`, read directly into the core's types.
//!
//! These two arrive every second for years with mostly the same content. Decoding them completely
//! made forty strings and two maps per item only to drop most of them: half of all the agent's
//! cycles. This reads the dozen relevant fields and skips the others, whose contents cost nothing.

use std::sync::Arc;

use super::DecodeError;
use crate::limits::ATTEMPT_MAX;
use crate::model::cri::{
    Container, ContainerId, ContainerState, PodRef, PreStop, Sandbox, SandboxId,
};
use crate::model::pod::{FIRST_USER, SEEN};
use crate::model::time::Timestamp;
use crate::wire::protobuf::{Value, fields, text};

/// `ListPodSandboxResponse`
pub(super) fn sandboxes(
    message: &[u8],
    items_max: usize,
) -> Result<Vec<Arc<Sandbox>>, DecodeError> {
    list(message, items_max, sandbox)
}

/// `ListContainersResponse`
pub(super) fn containers(
    message: &[u8],
    items_max: usize,
) -> Result<Vec<Arc<Container>>, DecodeError> {
    list(message, items_max, container)
}

/// Both have their items in field 1.
fn list<T>(
    message: &[u8],
    items_max: usize,
    item: fn(&[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<Arc<T>>, DecodeError> {
    let mut items = Vec::new();
    for field in fields(message) {
        if let (1, Value::Bytes(bytes)) = field? {
            if items.len() == items_max {
                return Err(DecodeError::TooManyFields { max: items_max });
            }
            items.push(Arc::new(item(bytes)?));
        }
    }
    Ok(items)
}

/// `PodSandbox`: 1 id, 2 metadata, 3 state, 4 created_at, 5 labels, 6 annotations.
fn sandbox(message: &[u8]) -> Result<Sandbox, DecodeError> {
    let (mut id, mut attempt, mut state, mut created_at) = ("", 0, 0, 0);
    let mut labels = Labels::default();
    let (mut source, mut seen_at, mut first_user) = (None, None, None);
    for field in fields(message) {
        match field? {
            (1, Value::Bytes(bytes)) => id = text(bytes)?,
            (2, Value::Bytes(bytes)) => attempt = number_in(bytes, 4)?,
            (3, Value::Number(value)) => state = value,
            (4, Value::Number(nanos)) => created_at = nanos,
            (5, Value::Bytes(entry)) => labels.take(entry)?,
            (6, Value::Bytes(entry)) => {
                let (key, value) = map_entry(entry)?;
                if key == b"kubernetes.io/config.source" {
                    source = Some(text(value)?.into());
                } else if key == SEEN.as_bytes() {
                    seen_at = Timestamp::parse(text(value)?);
                } else if key == FIRST_USER.as_bytes() {
                    first_user = text(value)?.parse().ok();
                }
            }
            _ => {}
        }
    }
    Ok(Sandbox {
        id: SandboxId(named("PodSandbox.id", id)?),
        pod: labels.pod()?,
        attempt: attempt.min(u64::from(ATTEMPT_MAX)) as u32,
        ready: state == 0,
        created_at: created_at as i64,
        source,
        seen_at,
        first_user,
    })
}

/// `Container`: 1 id, 2 pod_sandbox_id, 3 metadata, 4 image, 5 image_ref, 6 state, 7 created_at,
/// 8 labels, 9 annotations, 10 image_id.
fn container(message: &[u8]) -> Result<Container, DecodeError> {
    let (mut id, mut sandbox, mut image) = ("", "", "");
    let (mut image_ref, mut image_id) = ("", "");
    let (mut attempt, mut state, mut created_at) = (0, 0, 0);
    let mut labels = Labels::default();
    let (mut hash, mut grace_s) = (None, None);
    let (mut handler, mut ports) = ("", "");
    for field in fields(message) {
        match field? {
            (1, Value::Bytes(bytes)) => id = text(bytes)?,
            (2, Value::Bytes(bytes)) => sandbox = text(bytes)?,
            (3, Value::Bytes(bytes)) => attempt = number_in(bytes, 2)?,
            (4, Value::Bytes(bytes)) => image = image_name(bytes)?,
            (5, Value::Bytes(bytes)) => image_ref = text(bytes)?,
            (6, Value::Number(value)) => state = value,
            (7, Value::Number(nanos)) => created_at = nanos,
            (8, Value::Bytes(entry)) => labels.take(entry)?,
            (9, Value::Bytes(entry)) => match map_entry(entry)? {
                (b"io.kubernetes.container.hash", value) => hash = Some(text(value)?.into()),
                (b"io.kubernetes.pod.terminationGracePeriod", value) => {
                    grace_s = text(value)?.parse().ok();
                }
                (b"io.kubernetes.container.preStopHandler", value) => handler = text(value)?,
                (b"io.kubernetes.container.ports", value) => ports = text(value)?,
                _ => {}
            },
            (10, Value::Bytes(bytes)) => image_id = text(bytes)?,
            _ => {}
        }
    }
    let name = text(labels.container)?;
    Ok(Container {
        id: ContainerId(named("Container.id", id)?),
        // Without a container name it is not a kubelet's container.
        pod: if name.is_empty() { None } else { labels.pod()? },
        name: name.into(),
        sandbox: SandboxId(sandbox.into()),
        attempt: attempt.min(u64::from(ATTEMPT_MAX)) as u32,
        state: match state {
            1 => ContainerState::Running,
            2 => ContainerState::Exited,
            3 => ContainerState::Unknown,
            _ => ContainerState::Created,
        },
        created_at: created_at as i64,
        image: image.into(),
        image_id: if image_id.is_empty() { image_ref } else { image_id }.into(),
        hash,
        grace_s,
        pre_stop: (!handler.is_empty())
            .then(|| Box::new(PreStop { handler: handler.into(), ports: ports.into() })),
    })
}

/// `ImageSpec`: 18 user_specified_image, where the runtime keeps it, else 1 image.
fn image_name(message: &[u8]) -> Result<&str, DecodeError> {
    let (mut image, mut written) = ("", "");
    for field in fields(message) {
        match field? {
            (1, Value::Bytes(bytes)) => image = text(bytes)?,
            (18, Value::Bytes(bytes)) => written = text(bytes)?,
            _ => {}
        }
    }
    Ok(if written.is_empty() { image } else { written })
}

/// The kubelet's labels.
#[derive(Default)]
struct Labels<'a> {
    uid: &'a [u8],
    namespace: &'a [u8],
    name: &'a [u8],
    container: &'a [u8],
}

impl<'a> Labels<'a> {
    fn take(&mut self, entry: &'a [u8]) -> Result<(), DecodeError> {
        let (key, value) = map_entry(entry)?;
        match key {
            b"io.kubernetes.pod.uid" => self.uid = value,
            b"io.kubernetes.pod.namespace" => self.namespace = value,
            b"io.kubernetes.pod.name" => self.name = value,
            b"io.kubernetes.container.name" => self.container = value,
            _ => {}
        }
        Ok(())
    }

    /// `None` where one is missing or empty.
    fn pod(&self) -> Result<Option<PodRef>, DecodeError> {
        if self.uid.is_empty() || self.namespace.is_empty() || self.name.is_empty() {
            return Ok(None);
        }
        Ok(Some(PodRef {
            uid: text(self.uid)?.into(),
            namespace: text(self.namespace)?.into(),
            name: text(self.name)?.into(),
        }))
    }
}

/// Key and value of one entry of a `map<string, string>`.
fn map_entry(message: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let (mut key, mut value) = (&b""[..], &b""[..]);
    for field in fields(message) {
        match field? {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

/// A number field of a message; 0 if it is absent.
fn number_in(message: &[u8], wanted: u64) -> Result<u64, DecodeError> {
    let mut found = 0;
    for field in fields(message) {
        let (number, value) = field?;
        if let (true, Value::Number(value)) = (number == wanted, value) {
            found = value;
        }
    }
    Ok(found)
}

fn named(what: &str, text: &str) -> Result<Box<str>, DecodeError> {
    if text.is_empty() {
        return Err(DecodeError::Malformed(format!("got an empty {what}, expected one")));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::{container as c, image};
    use super::*;
    use crate::limits::CRI_LIST_ITEMS_MAX as MAX;

    fn listed(image: &str, written: &str) -> c::Container {
        let map = |pairs: [(&str, &str); 4]| {
            pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        c::Container {
            id: "c1".to_owned(),
            pod_sandbox_id: "s1".to_owned(),
            metadata: Some(c::ContainerMetadata { name: "m".to_owned(), attempt: 3 }),
            image: Some(image::ImageSpec {
                image: image.to_owned(),
                user_specified_image: written.to_owned(),
                ..image::ImageSpec::default()
            }),
            state: 1,
            created_at: 7,
            labels: map([
                ("io.kubernetes.pod.uid", "u"),
                ("io.kubernetes.pod.namespace", "ns"),
                ("io.kubernetes.pod.name", "p"),
                ("io.kubernetes.container.name", "m"),
            ]),
            ..c::Container::default()
        }
    }

    fn message(containers: Vec<c::Container>) -> Vec<u8> {
        c::ListContainersResponse { containers }.encode_to_vec()
    }

    #[test]
    fn the_image_is_the_one_that_the_pod_names_where_the_runtime_keeps_it() {
        for (image, written, expected) in
            [("sha256:1", "i:1", "i:1"), ("sha256:1", "", "sha256:1"), ("", "", "")]
        {
            let read = containers(&message(vec![listed(image, written)]), MAX).expect("a list");
            assert_eq!(&*read[0].image, expected);
            assert_eq!((read[0].attempt, read[0].state), (3, ContainerState::Running));
        }
    }

    #[test]
    fn after_the_greatest_attempt_there_is_a_next_one() {
        let mut last = listed("a", "b");
        last.metadata = Some(c::ContainerMetadata { name: "m".to_owned(), attempt: u32::MAX });
        let read = containers(&message(vec![last]), MAX).expect("a list");
        assert_eq!(read[0].attempt, ATTEMPT_MAX);
    }

    #[test]
    fn a_list_cut_anywhere_is_refused_or_shorter_but_never_half_an_item() {
        let whole = message(vec![listed("a", "b"), listed("c", "d")]);
        let item = whole.len() / 2;
        for end in 0..whole.len() {
            match containers(&whole[..end], MAX) {
                Ok(read) => assert_eq!(read.len() * item, end, "cut at {end}"),
                Err(error) => assert!(error.to_string().contains("got no field"), "{error}"),
            }
        }
    }

    #[test]
    fn more_items_than_any_node_has_are_refused() {
        let small = c::Container { id: "c".to_owned(), ..c::Container::default() };
        let many = message(vec![small.clone(); MAX]);
        assert_eq!(containers(&many, MAX).map(|read| read.len()), Ok(MAX));
        let more = message(vec![small; MAX + 1]);
        assert_eq!(containers(&more, MAX), Err(DecodeError::TooManyFields { max: MAX }));
    }

    #[test]
    fn a_container_without_an_id_is_refused() {
        let error = containers(&message(vec![c::Container::default()]), MAX).expect_err("no id");
        assert!(error.to_string().contains("got an empty Container.id"), "{error}");
    }
}
