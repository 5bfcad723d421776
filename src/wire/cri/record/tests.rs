//! Records come back as they were, those of other versions as far as they can be read.

use super::super::convert::tests::{container_config, sandbox_config};
use super::*;

fn process() -> Process {
    Process { pid: 42, start_time: 1 << 40, boot: BootId("b-1".into()) }
}

fn exited(reason: ExitReason) -> ContainerPhase {
    let message = "no such file: \"é\"\n".into();
    ContainerPhase::Exited(Exit { code: -1, reason, message, started_at: 7, finished_at: 8 })
}

fn sandbox_record(phase: SandboxPhase) -> Record {
    Record::Sandbox(SandboxRecord {
        id: SandboxId("5".repeat(64).into()),
        config: sandbox_config(),
        phase,
        created_at: i64::MIN,
        ips: vec!["10.88.0.2".into(), "fd00::2".into()],
        boot: BootId("b-1".into()),
        program: "/usr/bin/crun".into(),
    })
}

fn container_record(phase: ContainerPhase) -> Record {
    Record::Container(ContainerRecord {
        id: ContainerId("c".repeat(64).into()),
        sandbox: SandboxId("5".repeat(64).into()),
        config: container_config(),
        log: "/var/log/pods/ns_web_u/app/3.log".into(),
        image: ImageId("sha256:1".into()),
        layers: vec![DiffId("sha256:2".into()), DiffId("sha256:3".into())],
        stop_signal: 15,
        created_at: 1 << 60,
        phase,
    })
}

fn image_record() -> Record {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).into()).collect();
    Record::Image(ImageRecord {
        id: ImageId("sha256:1".into()),
        tags: texts(&["docker.io/library/busybox:1"]),
        digests: texts(&["docker.io/library/busybox@sha256:9"]),
        layers: vec![DiffId("sha256:2".into())],
        size: u64::MAX,
        pinned: true,
        config: ImageConfig {
            user: "web:1".into(),
            env: texts(&["PATH=/bin", ""]),
            entrypoint: texts(&["/sh"]),
            cmd: texts(&["-c", "true"]),
            working_dir: "/w".into(),
            volumes: texts(&["/data"]),
            stop_signal: "SIGQUIT".into(),
            labels: [("k".into(), "v".into()), ("empty".into(), String::new())].into(),
        },
    })
}

fn all() -> Vec<Record> {
    let running = ContainerPhase::Running { started_at: 9, process: process() };
    let phases = [
        ContainerPhase::Created,
        ContainerPhase::Starting(BootId("b-1".into())),
        ContainerPhase::Starting(BootId("".into())),
        running,
    ];
    let exits = EXIT_REASONS.iter().map(|reason| exited(*reason));
    let sandboxes = SANDBOX_PHASES.iter().map(|phase| sandbox_record(*phase));
    let containers = phases.into_iter().chain(exits).map(container_record);
    sandboxes.chain(containers).chain([image_record()]).collect()
}

#[test]
fn every_record_comes_back_as_it_was() {
    for record in all() {
        assert_eq!(decode(&encode(&record)), Ok(record));
    }
}

/// The numbers are for ever: other versions wrote them.
#[test]
fn the_numbers_of_phases_and_reasons_stay() {
    let tail = |record: &Record| {
        let bytes = encode(record);
        bytes[bytes.len() - 8..].to_vec()
    };
    let phase = |of| (number_of(SANDBOX_PHASES, of), of);
    for (number, of) in [
        phase(SandboxPhase::Making),
        phase(SandboxPhase::Ready),
        phase(SandboxPhase::Stopping),
        phase(SandboxPhase::NotReady),
    ] {
        assert_eq!(variant("phase", SANDBOX_PHASES, number), Ok(of));
    }
    let numbers = SANDBOX_PHASES.iter().map(|it| number_of(SANDBOX_PHASES, *it));
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(number_of(EXIT_REASONS, ExitReason::OomKilled), 3);
    assert_eq!(number_of(EXIT_REASONS, ExitReason::Unknown), 5);
    assert_eq!(tail(&container_record(ContainerPhase::Created))[6..], [9 << 3 | 2, 0]);
    let starting = ContainerPhase::Starting(BootId("boot".into()));
    assert_eq!(tail(&container_record(starting))[2..], *b"\x52\x04boot");
}

#[test]
fn a_record_cut_anywhere_is_refused_or_has_less() {
    for record in all() {
        let bytes = encode(&record);
        for end in 0..bytes.len() {
            if let Ok(less) = decode(&bytes[..end]) {
                panic!("{end} of {} bytes became {less:?}", bytes.len());
            }
        }
    }
}

/// A message `Record` with one field, its content.
fn with(number: u8, content: &[u8]) -> Vec<u8> {
    written(|w| w.bytes(number.into(), content))
}

fn refused(bytes: &[u8]) -> String {
    decode(bytes).expect_err("it cannot be read").to_string()
}

#[test]
fn fields_of_another_version_are_skipped_or_have_their_zero() {
    for record in all() {
        let (number, bytes) = match &record {
            Record::Sandbox(one) => (1, written(|w| sandbox(w, one))),
            Record::Container(one) => (2, written(|w| container(w, one))),
            Record::Image(one) => (3, written(|w| image(w, one))),
        };
        let newer = written(|w| {
            w.text(99, "color");
            w.bytes(number, &[&bytes[..], &with(98, b"blue")].concat());
            w.number(100, 1);
        });
        assert_eq!(decode(&newer), Ok(record));
    }
    let Ok(Record::Image(older)) = decode(&with(3, b"\x0a\x01i")) else { panic!("an image") };
    assert_eq!((&*older.id.0, older.size, older.pinned), ("i", 0, false));
}

#[test]
fn what_would_be_taken_for_something_else_is_refused() {
    assert_eq!(refused(b""), "got no sandbox, container or image, expected one");
    assert_eq!(refused(&with(9, b"x")), "got no sandbox, container or image, expected one");
    assert_eq!(refused(b"\x0a\x00"), "Sandbox.phase: got 0, expected 1 to 4");
    assert_eq!(refused(&with(1, b"\x20\x05")), "Sandbox.phase: got 5, expected 1 to 4");
    assert_eq!(refused(&with(1, b"\x20\x02")), "Sandbox.config: got none, expected one");
    assert_eq!(refused(b"\x12\x00"), "Container.phase: got none, expected one");
    assert_eq!(refused(&with(2, b"\x4a\x00")), "Container.config: got none, expected one");
    assert_eq!(refused(&with(2, b"\x5a\x00")), "Running.process: got none, expected one");
    assert_eq!(refused(&with(2, b"\x62\x02\x10\x06")), "Exit.reason: got 6, expected 1 to 5");
    let far = b"\x38\xff\xff\xff\xff\xff\x01";
    assert_eq!(refused(&with(2, far)), "got 68719476735, expected 32 bits");
    // A restriction that this version does not know.
    let Record::Container(record) = container_record(ContainerPhase::Created) else { panic!() };
    let config = [convert::container_config(&record.config), with(30, b"x")].concat();
    let bytes = written(|w| {
        w.message(2, &mut |w| {
            w.bytes(3, &config);
            w.message(9, &mut |_| {});
        });
    });
    let why = "ContainerConfig has field 30, which this runtime does not know";
    assert_eq!(refused(&bytes), why);
}
