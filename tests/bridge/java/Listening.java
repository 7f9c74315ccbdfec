import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupAssignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.TaskAssignmentUtils;
import org.apache.kafka.streams.processor.assignment.TaskAssignor;

/** Leaves everything where it is, says what it is told, and fails then. */
public final class Listening implements TaskAssignor {
    private String name;

    @Override public void configure(final Map<String, ?> configs) {
        name = (String) configs.get("application.id");
    }

    @Override public TaskAssignment assign(final ApplicationState application) {
        return new TaskAssignment(TaskAssignmentUtils.identityAssignment(application).values());
    }

    @Override public void onAssignmentComputed(final GroupAssignment assignment, final GroupSubscription subscription, final AssignmentError error) {
        System.err.println(name + " was told " + error);
        throw new IllegalStateException("of no use");
    }
}
