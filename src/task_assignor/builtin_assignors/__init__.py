"""The assignors that come with the package: plug-ins through the same public interface that users have."""

from task_assignor.builtin_assignors.sticky import StickyTaskAssignor

__all__ = ["StickyTaskAssignor"]
