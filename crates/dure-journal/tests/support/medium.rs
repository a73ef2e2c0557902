//! Small queues on images.

use dure_block::overlay::OverlayRam;
use dure_block::ram::Image;
use dure_block::{Device, Queue, QueueConfig, share};
use dure_sync::Arc;

/// A device with the content of `image`, which it leaves alone.
pub(crate) fn device_on(image: Image) -> OverlayRam {
    OverlayRam::new("test", Arc::new(image))
}

/// A queue on `image`.
pub(crate) fn queue_on(image: Image) -> Arc<Queue> {
    queue_of(share(device_on(image)))
}

/// A small queue on `device`.
pub(crate) fn queue_of(device: Arc<dyn Device>) -> Arc<Queue> {
    Queue::new(
        device,
        QueueConfig {
            nr_requests: 8,
            ..QueueConfig::default()
        },
    )
}
