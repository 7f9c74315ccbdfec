package taskassignor;

import java.nio.file.Path;
import org.apache.kafka.streams.processor.assignment.ApplicationState;

/** Java decides as it would without the bridge; every state and decision is recorded. There is no Python in it. */
public final class RecordingTaskAssignor extends BridgeAssignor {
    @Override Decision decide(final ApplicationState application, final State state) throws Exception {
        return ofJava(application, state);
    }

    @Override Path recordDir() {
        return settings.recordDir == null ? settings.defaultRecordDir() : settings.recordDir;
    }
}
