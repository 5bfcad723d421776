//! Stories of images: names, pulls, and layers.

use super::*;
use crate::limits::{RUNTIME_IMAGES_MAX, RUNTIME_PULLS_MAX, RUNTIME_RESUME_MS};

fn pull(name: &str) -> Request {
    Request::PullImage { image: name.into(), auth: None }
}

fn layers(names: &[&str]) -> Vec<DiffId> {
    names.iter().map(|name| DiffId(format!("sha256:{name}").into())).collect()
}

fn tags(story: &mut Story, name: &str) -> Option<usize> {
    match story.ask(Request::ImageStatus(name.into())) {
        Ok(Reply::Image(image)) => image.map(|image| image.tags.len()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_image_is_found_by_all_that_names_it() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let mut record = image("app:2");
    record.digests = vec![format!("docker.io/library/app@{digest}").into()];
    let id = record.id.0.clone();
    let other =
        ImageRecord { id: ImageId(format!("sha256:{}", "6f".repeat(32)).into()), ..image("o:1") };
    let mut story = Story::with(Stored { images: vec![record, other], ..Stored::default() });
    for (name, is_found) in [
        ("app:2", true),
        ("docker.io/library/app:2", true),
        ("index.docker.io/library/app:2", true),
        ("app", false),
        ("app:1", false),
        ("x.io/app:2", false),
        (&format!("app@{digest}"), true),
        (&format!("app:9@{digest}"), true),
        (&id, true),
        (&id["sha256:".len()..], true),
        (&id[..12], true),
        (&id["sha256:".len()..][..12], true),
        ("7", false),
    ] {
        assert_eq!(tags(&mut story, name).is_some(), is_found, "{name}");
        let Ok(Reply::Images(all)) = story.ask(Request::ListImages(Some(name.into()))) else {
            panic!("no list")
        };
        assert_eq!(all.len(), usize::from(is_found), "{name}");
    }
    assert_eq!(
        story.ask(Request::ImageStatus("6".into())).expect_err("two").code,
        Code::InvalidArgument
    );
    assert_eq!(story.ask(Request::ImageFsInfo), Ok(Reply::ImageFs { used_bytes: 20 }));
}

#[test]
fn pulls_of_one_name_share_a_job_and_end_with_their_last_client() {
    let mut story = Story::new();
    let (first, out) = story.call(pull("b:1"));
    let (job, _) = jobs(&out)[0].clone();
    let (second, out) = story.call(pull("b:1"));
    assert_eq!(out, []);
    let (other, out) = story.call(pull("c:1"));
    assert_eq!((jobs(&out).len(), RUNTIME_PULLS_MAX), (0, 1));
    assert_eq!(kinds(&story.give(Event::Cancel(first))), ["answer"]);
    let out = story.give(Event::Cancel(second));
    assert_eq!(kinds(&out), ["kill job", "answer"]);
    let (third, out) = story.call(pull("b:1"));
    assert_eq!(out, [], "the killed one is no help");
    let out = story.give(Event::Job(job, Err(JobFault::Died("killed".into()))));
    assert_eq!(jobs(&out).len(), 1);
    let out = story.flow(out);
    assert!(matches!(answer(&out, other), Some(Ok(Reply::Pulled(_)))));
    assert!(matches!(answer(&out, third), Some(Ok(Reply::Pulled(_)))));
}

#[test]
fn a_fault_of_a_pull_has_its_code() {
    for (fault, code) in [
        (JobFault::NotFound("manifest unknown".into()), Code::NotFound),
        (JobFault::Denied("pull access denied".into()), Code::PermissionDenied),
        (JobFault::Failed("no route".into()), Code::Unknown),
    ] {
        let mut story = Story::new();
        let (call, out) = story.call(pull("b:1"));
        let (job, _) = jobs(&out)[0].clone();
        let out = story.give(Event::Job(job, Err(fault)));
        assert_eq!(refused(&out, call).code, code);
    }
    let refusal = Story::new().ask(pull("A B")).expect_err("no name");
    assert_eq!(refusal.code, Code::InvalidArgument);
    let many = (0..RUNTIME_IMAGES_MAX).map(|at| {
        let id = ImageId(format!("sha256:{}", format!("{at:016x}").repeat(4)).into());
        ImageRecord { id, tags: Vec::new(), ..image("a:1") }
    });
    let mut story = Story::with(Stored { images: many.collect(), ..Stored::default() });
    assert_eq!(story.ask(pull("b:1")).expect_err("full").code, Code::ResourceExhausted);
}

#[test]
fn a_tag_moves_to_the_image_that_was_pulled_last() {
    let mut story = Story::new();
    let (call, out) = story.call(pull("a:1"));
    let (job, _) = jobs(&out)[0].clone();
    let newer = ImageRecord { tags: image("a:1").tags, ..image("n:1") };
    let out = story.give(Event::Job(job, Ok(JobReply::Image(Box::new(newer.clone())))));
    assert_eq!((kinds(&out), answer(&out, call)), (vec!["save", "save"], None));
    assert_eq!(tags(&mut story, &image("a:1").id.0), Some(1), "not before it is durable");
    let out = story.give(Event::Saved);
    assert_eq!(answer(&out, call), Some(Ok(Reply::Pulled(newer.id.clone()))));
    assert_eq!(tags(&mut story, &image("a:1").id.0), Some(0));
    assert_eq!(tags(&mut story, "a:1"), Some(1));
    // Another name of the same image is added.
    let (_, out) = story.call(pull("m:1"));
    let (job, _) = jobs(&out)[0].clone();
    let renamed = ImageRecord { tags: image("m:1").tags, ..newer };
    let out = story.give(Event::Job(job, Ok(JobReply::Image(Box::new(renamed)))));
    story.flow(out);
    assert_eq!(tags(&mut story, "m:1"), Some(2));
}

#[test]
fn a_crash_between_the_halves_of_a_move_leaves_no_name_on_two_images() {
    let other = ImageRecord { tags: image("a:1").tags, ..image("n:1") };
    let mut story = Story::with(Stored { images: vec![image("a:1"), other], ..Stored::default() });
    assert_eq!(kinds(&story.out), ["save"]);
    story.give(Event::Saved);
    assert_eq!(tags(&mut story, &image("a:1").id.0), Some(1));
    assert_eq!(tags(&mut story, &image("n:1").id.0), Some(0));
}

#[test]
fn an_import_brings_its_images_with_their_names() {
    let mut story = Story::new();
    let (call, out) = story.call(Request::ImportImages { path: "/a.tar".into() });
    let (job, _) = jobs(&out)[0].clone();
    let images = vec![image("b:1"), image("c:1")];
    let out = story.give(Event::Job(job, Ok(JobReply::Images(images))));
    let out = story.flow(out);
    let names = vec!["docker.io/library/b:1".into(), "docker.io/library/c:1".into()];
    assert_eq!(answer(&out, call), Some(Ok(Reply::Imported(names))));
}

#[test]
fn layers_go_when_nothing_names_them() {
    let mut story =
        Story::with(Stored { images: vec![image("a:1"), image("b:1")], ..Stored::default() });
    let sandbox = story.ready_sandbox();
    let id = story.created(&sandbox, "web");
    let (call, out) = story.call(Request::RemoveImage("a:1".into()));
    assert_eq!(kinds(&out), ["erase"]);
    let out = story.give(Event::Saved);
    assert_eq!((kinds(&out), answer(&out, call)), (vec!["answer"], Some(Ok(Reply::Done))));
    let (_, out) = story.call(Request::RemoveContainer(id.0));
    let out = story.flow(out);
    let removed = jobs(&out).into_iter().find_map(|(_, job)| match job {
        Job::RemoveLayers { layers, .. } => Some(layers),
        _ => None,
    });
    assert_eq!(removed, Some(layers(&["a:1"])), "the container's, and not the base of both");
    // Never beside a pull.
    let (_, out) = story.call(pull("c:1"));
    let (job, _) = jobs(&out)[0].clone();
    story.call(Request::RemoveImage("b:1".into()));
    assert_eq!(kinds(&story.give(Event::Saved)), ["answer"]);
    let out = story.give(Event::Job(job, Ok(JobReply::Image(Box::new(image("c:1"))))));
    assert_eq!(kinds(&out), ["save"]);
    let (job, Job::RemoveLayers { layers: removed, .. }) =
        jobs(&story.give(Event::Saved))[0].clone()
    else {
        panic!("no removal")
    };
    assert_eq!(removed, layers(&["b:1"]));
    let (_, out) = story.call(pull("b:1"));
    assert_eq!(out, [], "it waits for the removal");
    assert_eq!(jobs(&story.give(Event::Job(job, Ok(JobReply::Done)))).len(), 1);
}

#[test]
fn layers_of_a_pull_that_failed_wait_for_the_next_try() {
    let mut story = Story::new();
    let (_, out) = story.call(pull("b:1"));
    let (job, _) = jobs(&out)[0].clone();
    story.give(Event::Job(job, Err(JobFault::Failed("line".into()))));
    story.give(Event::Layers(layers(&["a:1", "base", "half"])));
    let (_, out) = story.call(pull("b:1"));
    let (job, _) = jobs(&out)[0].clone();
    story.give(Event::Job(job, Err(JobFault::Failed("line".into()))));
    assert_eq!(kinds(&story.wait(RUNTIME_RESUME_MS - 1)), [""; 0]);
    let out = story.wait(1);
    let (job, removed) = jobs(&out)[0].clone();
    assert_eq!(removed, Job::RemoveLayers { layers: layers(&["half"]), downloads: true });
    // A removal that fails is tried again, once what is left is known.
    story.give(Event::Job(job, Err(JobFault::Failed("busy".into()))));
    story.give(Event::Layers(layers(&["a:1", "base", "half"])));
    let (_, removed) = jobs(&story.wait(RUNTIME_RETRY_MIN_MS))[0].clone();
    assert_eq!(removed, Job::RemoveLayers { layers: layers(&["half"]), downloads: false });
}

#[test]
fn downloads_that_nothing_continues_are_removed_but_never_beside_a_pull() {
    let mut story = Story::new();
    story.give(Event::Layers(layers(&["a:1", "base"])));
    story.wait(RUNTIME_RESUME_MS - 1);
    let (_, out) = story.call(pull("b:1"));
    let (job, _) = jobs(&out)[0].clone();
    assert_eq!(kinds(&story.wait(1)), [""; 0], "this pull may continue one of them");
    let out = story.give(Event::Job(job, Err(JobFault::NotFound("no such image".into()))));
    let (_, removed) = jobs(&out)[0].clone();
    assert_eq!(removed, Job::RemoveLayers { layers: Vec::new(), downloads: true });
    let (_, out) = story.call(pull("b:1"));
    assert_eq!(out, [], "it waits for the removal");
}

#[test]
fn downloads_are_removed_in_their_time_whatever_was_removed_before() {
    let mut story = Story::new();
    story.give(Event::Layers(layers(&["a:1", "base"])));
    story.wait(RUNTIME_RESUME_MS / 2);
    let (_, out) = story.call(Request::RemoveImage("a:1".into()));
    let removed = |out: &[Action]| jobs(out).into_iter().map(|(_, job)| job).collect::<Vec<_>>();
    let [Job::RemoveLayers { downloads: false, .. }] = &removed(&story.flow(out))[..] else {
        panic!("its layers are removed at once")
    };
    let all = removed(&story.wait(RUNTIME_RESUME_MS / 2));
    assert_eq!(all, [Job::RemoveLayers { layers: Vec::new(), downloads: true }]);
}

#[test]
fn a_pinned_image_is_not_removed() {
    let pinned = ImageRecord { pinned: true, ..image("a:1") };
    let mut story = Story::with(Stored { images: vec![pinned], ..Stored::default() });
    let refusal = story.ask(Request::RemoveImage("a:1".into())).expect_err("it is pinned");
    assert_eq!(refusal.code, Code::FailedPrecondition);
}

#[test]
fn an_image_that_cannot_be_saved_is_refused_and_its_disk_made_sure_of() {
    let mut story = Story::new();
    let (call, out) = story.call(pull("b:1"));
    let (job, _) = jobs(&out)[0].clone();
    story.give(Event::Job(job, Ok(JobReply::Image(Box::new(image("b:1"))))));
    let out = story.give(Event::NotSaved("full".into()));
    assert_eq!(refused(&out, call).message, "the record cannot be saved: full");
    // The disk may have the record: it is erased before its layers are.
    let out = story.wait(RUNTIME_RETRY_MIN_MS);
    assert_eq!(out, [Action::Erase(RecordKey::Image(image("b:1").id))]);
    story.give(Event::Saved);
    assert_eq!(kinds(&story.wait(RUNTIME_RESUME_MS)), ["remove layers"]);
}
